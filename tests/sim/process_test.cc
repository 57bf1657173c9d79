// What only simulated processes do: programs, virtual time, deaths the network hears of.
#include "sim/process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "sim/network.h"

namespace lockstep::sim {
namespace {

using namespace std::chrono_literals;
using sys::ExitStatus;
using sys::Signal;
using How = ExitStatus::How;

TEST(SimProcess, RunsItsProgramWithItsCommand) {
  World world(1);
  Processes processes(world);
  std::string seen;
  processes.install("worker", [&](Running& self) {
    seen = self.command().to_string();
    self.after(5s, [&self] { self.exit(259); });
  });
  auto process = processes.spawn({.argv = {"worker", "--rank=1"}});
  EXPECT_EQ(seen, "") << "it takes a moment to start";
  EXPECT_EQ(process->wait(Deadline::after(world, 60s)), (ExitStatus{How::exited, 3}));
  EXPECT_EQ(seen, "worker --rank=1");
  EXPECT_GE(world.now(), Time() + 5s);
  EXPECT_LT(world.now(), Time() + 6s);
}

TEST(SimProcess, AStoppedProcessActsWhenResumed) {
  World world(1);
  Processes processes(world);
  Time acted{};
  processes.install("worker", [&](Running& self) { self.after(1s, [&] { acted = world.now(); }); });
  auto process = processes.spawn({.argv = {"worker"}});
  Running& self = *processes.find(process->pid());
  world.run_for(100ms);
  EXPECT_TRUE(process->signal(Signal::stop).ok());
  world.run_for(10s);
  EXPECT_EQ(acted, Time());
  EXPECT_TRUE(self.stopped());
  EXPECT_FALSE(self.runs());
  EXPECT_TRUE(process->signal(Signal::resume).ok());
  world.run_for(1ms);
  EXPECT_GE(acted, Time() + 10s);
  EXPECT_TRUE(self.runs());
}

TEST(SimProcess, NothingHappensAfterTheEnd) {
  World world(1);
  Processes processes(world);
  int acts = 0;
  int ends = 0;
  processes.install("worker", [&](Running& self) {
    self.on_end([&] { ++ends; });
    self.after(1s, [&] { ++acts; });
  });
  auto process = processes.spawn({.argv = {"worker"}});
  world.run_for(10ms);
  EXPECT_TRUE(process->signal(Signal::kill).ok());
  EXPECT_EQ(process->wait(Deadline::after(world, 1s)), (ExitStatus{How::signalled, SIGKILL}));
  while (world.step()) {
  }
  EXPECT_EQ(acts, 0);
  EXPECT_EQ(ends, 1);
}

TEST(SimProcess, MayCatchTerminateButNotKill) {
  World world(1);
  Processes processes(world);
  int caught = 0;
  processes.install("stubborn", [&](Running& self) {
    self.on_signal(Signal::terminate, [&] { ++caught; });
    self.on_signal(Signal::kill, [&] { ++caught; });
  });
  auto process = processes.spawn({.argv = {"stubborn"}});
  world.run_for(10ms);
  EXPECT_TRUE(process->signal(Signal::terminate).ok());
  EXPECT_EQ(process->wait(Deadline::after(world, 1s)), std::nullopt);
  EXPECT_EQ(caught, 1);
  EXPECT_TRUE(process->signal(Signal::kill).ok());
  EXPECT_EQ(process->wait(Deadline::after(world, 1s)), (ExitStatus{How::signalled, SIGKILL}));
  EXPECT_EQ(caught, 1);
}

TEST(SimProcess, LettingGoKills) {
  World world(1);
  Processes processes(world);
  processes.install("worker", [](Running&) {});
  const int pid = processes.spawn({.argv = {"worker"}})->pid();
  world.run_for(1s);
  EXPECT_EQ(processes.find(pid)->status(), (ExitStatus{How::signalled, SIGKILL}));
  EXPECT_EQ(processes.find(pid + 1), nullptr);
}

TEST(SimProcess, ADeathReachesThePeersOfTheProcess) {
  World world(1);
  Network network(world, {.delay = 1ms});
  Processes processes(world);
  std::unique_ptr<sys::Connection> theirs;
  processes.install("worker", [&](Running& self) {
    self.on_end([&] { network.kill("host1"); });
    theirs = network.at("host1").connect("host0:1");
  });
  auto listener = network.at("host0").listen("host0:1");
  auto process = processes.spawn({.argv = {"worker"}});
  std::unique_ptr<sys::Connection> ours;
  ASSERT_TRUE(world.run_until([&] { return (ours = listener->accept()) != nullptr; },
                              Deadline::after(world, 1s)));
  std::byte some[1];
  EXPECT_EQ(ours->read(some).state, sys::Transfer::State::open);
  EXPECT_TRUE(process->signal(Signal::kill).ok());
  EXPECT_TRUE(world.run_until([&] { return ours->read(some).state != sys::Transfer::State::open; },
                              Deadline::after(world, 1s)));
}

}  // namespace
}  // namespace lockstep::sim
