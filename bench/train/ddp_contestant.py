"""A process of PyTorch's DistributedDataParallel over gloo, beside ours in bench_train.

    ddp_contestant.py --net NET --orders SOCKET --rank R --ranks N --store FILE

Nets, seeds and orders are those of net.h and orders.h.
"""

import argparse
import socket

import torch
import torch.distributed
from torch import nn

BATCH = 64  # of a replica
CLASSES = 10
RATE = 0.001
MOMENTUM = 0.9
WEIGHT_SEED = 1
DATA_SEED = 100  # and the replica's number


def connected(widths):
    layers = []
    for i in range(1, len(widths)):
        if i > 1:
            layers.append(nn.ReLU())
        layers.append(nn.Linear(widths[i - 1], widths[i]))
    return layers


def make_net(kind):
    if kind == "mlp":
        return nn.Sequential(*connected([784, 512, 512, CLASSES]))
    if kind == "mlp25m":
        return nn.Sequential(*connected([784, 4096, 4096, 1280, CLASSES]))
    if kind == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), *connected([32 * 7 * 7, 128, CLASSES]))
    raise ValueError(f"there is no net {kind}")


def make_rows(kind, replica):
    generator = torch.Generator().manual_seed(DATA_SEED + replica)
    shape = (BATCH, 1, 28, 28) if kind == "cnn" else (BATCH, 784)
    x = torch.randn(shape, generator=generator)
    return x, torch.randint(0, CLASSES, (BATCH,), generator=generator)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", required=True)
    parser.add_argument("--orders", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--store", required=True)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{arguments.store}",
        rank=arguments.rank, world_size=arguments.ranks)
    torch.manual_seed(WEIGHT_SEED)
    net = make_net(arguments.net)
    parameters = sum(p.numel() for p in net.parameters())
    parallel = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=RATE, momentum=MOMENTUM)
    x, y = make_rows(arguments.net, arguments.rank)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(parallel(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    driver = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    driver.connect(arguments.orders)
    driver.send(f"ready {arguments.rank} {parameters}".encode())
    while True:
        order = driver.recv(128).decode().split()
        if len(order) != 2 or order[0] != "steps":
            break
        for _ in range(int(order[1])):
            loss = step()
        driver.send(f"done {loss.item()}".encode())


main()
