// lockstep explain: which algorithm a collective would take, why, and what it would do.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>

#include "commands.h"
#include "names.h"
#include "plan/select.h"
#include "plan/tree.h"
#include "plan_text.h"
#include "shape.h"

namespace lockstep::tool {
namespace {

/// Slots of sessions whose ranks are threads (access "shared"), and of processes ("slots").
constexpr std::size_t kSlotBytesOfThreads = 8192;
constexpr int kMaxRanks = 4096;

struct Options {
  std::string collective;
  int ranks = 2;
  std::string bytes = "1M";
  std::string dtype = "float32";
  std::string replicas = "1";
  int hosts = 1;
  int root = 0;
  std::string order = "fixed_tree";
  std::string access;
  std::string algorithms;
  std::string costs;
  int plan_of = -1;
};

int parse_count(std::string_view option, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMaxRanks) {
    throw UsageError(
        fmt::format("{} is \"{}\"; it must be a number from 1 to {}", option, text, kMaxRanks));
  }
  return value;
}

/// "3": so many on every rank; "1,2,1": one number for each rank.
std::vector<int> parse_replicas(const Options& options) {
  std::vector<int> replicas;
  for (const std::string& word : split(options.replicas, ',')) {
    replicas.push_back(parse_count("--replicas", word));
  }
  const auto ranks = static_cast<std::size_t>(options.ranks);
  if (replicas.size() == 1) replicas.assign(ranks, replicas[0]);
  if (replicas.size() != ranks) {
    throw UsageError(fmt::format("--replicas has {} numbers for {} ranks", replicas.size(), ranks));
  }
  return replicas;
}

/// Ranks side by side share a host; the first hosts have one more if they cannot be equal.
std::vector<int> hosts_of(int ranks, int hosts) {
  std::vector<int> host;
  for (int rank = 0; rank < ranks; ++rank) {
    host.push_back(static_cast<int>(static_cast<std::int64_t>(rank) * hosts / ranks));
  }
  return host;
}

/// The question, understood.
struct Question {
  plan::Kind kind;
  DType dtype;
  Shape shape;
  plan::Layout layout;
  plan::Request request;
  plan::Access access;
  plan::Order order;
  plan::Costs costs;
  plan::Overrides overrides;
  std::string overrides_from;
};

plan::Staging staging_of(const Question& question) {
  return question.costs.staging.value_or(plan::Staging{});
}

void require(const Status& status) {
  if (!status.ok()) throw UsageError(status.message());
}

plan::Access access_of(const Options& options) {
  if (options.access.empty()) {
    return options.hosts == 1 ? plan::Access::shared : plan::Access::messages;
  }
  if (options.access == "messages") return plan::Access::messages;
  if (options.access != "shared" && options.access != "slots") {
    throw UsageError(
        fmt::format("--access is \"{}\"; it must be messages, slots or shared", options.access));
  }
  if (options.hosts > 1) {
    throw UsageError(
        fmt::format("--access {} needs all ranks on one host (--hosts 1)", options.access));
  }
  return options.access == "slots" ? plan::Access::slots : plan::Access::shared;
}

plan::Order order_of(const Options& options) {
  if (options.order == "any") return plan::Order::any;
  if (options.order == "fixed_tree") return plan::Order::fixed_tree;
  throw UsageError(fmt::format("--order is \"{}\"; it must be fixed_tree or any", options.order));
}

Question understand(const Options& options) {
  const plan::Kind kind = parse_kind(options.collective);
  const std::vector<DType> dtypes = parse_dtypes(options.dtype);
  if (dtypes.size() != 1) throw UsageError("-d: explain takes one element type");
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    throw UsageError(fmt::format("-n is {}; it must be from 1 to {}", options.ranks, kMaxRanks));
  }
  if (options.hosts < 1 || options.hosts > options.ranks) {
    throw UsageError(fmt::format("--hosts is {}; {} ranks can be on 1 to {} hosts", options.hosts,
                                 options.ranks, options.ranks));
  }
  if (options.root < 0 || options.root >= options.ranks) {
    throw UsageError(
        fmt::format("-r is {}; there are ranks 0 to {}", options.root, options.ranks - 1));
  }
  if (options.plan_of >= options.ranks) {
    throw UsageError(
        fmt::format("--plan is {}; there are ranks 0 to {}", options.plan_of, options.ranks - 1));
  }
  if (kind == plan::Kind::send_receive && options.ranks < 2) {
    throw UsageError("send_receive needs 2 ranks or more (-n)");
  }
  const Shape shape = shape_of(kind, parse_size("-b", options.bytes), dtypes[0], options.ranks);
  Question question{
      .kind = kind,
      .dtype = dtypes[0],
      .shape = shape,
      .layout = plan::Layout(parse_replicas(options), hosts_of(options.ranks, options.hosts)),
      .request = request_of(kind, shape, dtypes[0], options.ranks),
      .access = access_of(options),
      .order = order_of(options),
      .costs = {},
      .overrides = {},
      .overrides_from = "--algorithms"};
  question.request.root = options.root;
  question.request.to = (options.root + 1) % options.ranks;
  require(plan::parse_costs(options.costs, question.costs));
  question.request.staged_chunk = staging_of(question).chunk_bytes / size_of(dtypes[0]);
  std::string algorithms = options.algorithms;
  if (const char* environment = std::getenv("LOCKSTEP_ALGORITHMS");
      algorithms.empty() && environment != nullptr) {
    algorithms = environment;
    question.overrides_from = "LOCKSTEP_ALGORITHMS";
  }
  require(plan::parse_overrides(algorithms, question.overrides));
  return question;
}

std::string replicas_text(const plan::Layout& layout) {
  bool equal = true;
  std::string list;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    equal = equal && layout.replicas(rank) == layout.replicas(0);
    list += (list.empty() ? "" : ", ") + std::to_string(layout.replicas(rank));
  }
  if (!equal) return list + " replicas";
  return fmt::format("{} replica{} each", layout.replicas(0), layout.replicas(0) == 1 ? "" : "s");
}

void print_question(const Question& question, int hosts) {
  const int ranks = question.layout.ranks();
  fmt::print("{} of {} ({} {}{}) over {} rank{} on {} host{}{}\n", plan::to_string(question.kind),
             size_text(question.shape.bytes), question.shape.count, to_string(question.dtype),
             question.shape.bytes > question.shape.count * size_of(question.dtype) ? " a rank" : "",
             ranks, ranks == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s",
             reduces(question.kind) ? ", " + replicas_text(question.layout) : "");
  fmt::print("access: {}; order of additions: {}\n\n", to_string(question.access),
             question.order == plan::Order::any ? "any" : "fixed_tree only");
}

void print_candidates(const plan::Choice& choice) {
  fmt::print("  {:<15} {:<9} {:<11} {:>14}\n", "algorithm", "access", "order", "estimate (us)");
  for (const plan::Candidate& candidate : choice.candidates) {
    const plan::Algorithm& algorithm = *candidate.algorithm;
    fmt::print("{} {:<15} {:<9} {:<11} ", &algorithm == choice.algorithm ? '*' : ' ',
               algorithm.name, to_string(algorithm.access), to_string(algorithm.order));
    if (candidate.refusal.empty()) {
      fmt::print("{:>14.2f}  {}\n", candidate.microseconds, algorithm.summary);
    } else {
      fmt::print("{:>14}  cannot serve: {}\n", "-", candidate.refusal);
    }
  }
  fmt::print("\nchoice: {}: {}\n", choice.algorithm->name, choice.why);
}

void print_figures(const plan::Costs& costs) {
  const auto gigabytes = [](double us_per_byte) { return 1e-3 / us_per_byte; };
  fmt::print(
      "figures: memory {:g} us a synchronisation, {:.1f} GB/s; tcp {:g} us a message, {:.1f} GB/s; "
      "reduction {:.1f} GB/s (--costs replaces them)\n",
      costs.memory.alpha_us, gigabytes(costs.memory.beta_us_per_byte), costs.tcp.alpha_us,
      gigabytes(costs.tcp.beta_us_per_byte), gigabytes(costs.gamma_us_per_byte));
}

/// Of values that go through slots.
void print_staging(const Question& question) {
  const plan::Staging staging = staging_of(question);
  fmt::print("staging: chunks of {} KiB, {} stores ({})\n", staging.chunk_bytes >> 10,
             staging.stores == plan::SlotStores::cached ? "cached" : "non-temporal",
             question.costs.staging ? "from --costs"
                                    : "the ranks of a host take what they measure when they join");
}

/// Bytes each rank sends; the largest and the sum are what matters.
struct Sent {
  std::uint64_t most = 0;
  std::uint64_t all = 0;
  std::uint64_t messages = 0;
  std::uint64_t peers = 0;  // of the rank that has most
};

Sent sent_by_all(const Question& question, const plan::Algorithm& algorithm,
                 const plan::Layout& layout) {
  Sent sent;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const Traffic traffic =
        traffic_of(algorithm.make(question.request, layout, rank), question.dtype);
    sent.most = std::max(sent.most, traffic.bytes);
    sent.all += traffic.bytes;
    sent.messages += traffic.messages;
    sent.peers = std::max(sent.peers, traffic.peers);
  }
  return sent;
}

/// How many subtrees of the fixed tree the rank with the most of them holds.
int most_subtrees(const plan::Layout& layout) {
  std::size_t most = 0;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const plan::Node range{layout.first(rank), layout.first(rank) + layout.replicas(rank)};
    most = std::max(most, plan::forest(range, layout.replicas()).size());
  }
  return static_cast<int>(most);
}

void print_traffic(const Question& question, const plan::Choice& choice) {
  const plan::Algorithm& algorithm = *choice.algorithm;
  const Sent sent = sent_by_all(question, algorithm, question.layout);
  if (sent.messages == 0) {
    fmt::print("traffic: no messages{}\n", algorithm.access != plan::Access::messages
                                               ? ", peers' memory is read and written"
                                               : "");
  } else {
    fmt::print("traffic: a rank sends up to {} ({} bytes); all ranks {} bytes in {} messages\n",
               size_text(sent.most), sent.most, sent.all, sent.messages);
    fmt::print("connections: a rank talks to up to {} of the {} others\n", sent.peers,
               question.layout.ranks() - 1);
  }
  const int subtrees = most_subtrees(question.layout);
  if (!reduces(question.kind) || subtrees < 2) return;
  fmt::print("layout: a rank holds up to {} subtrees of the sum's fixed tree", subtrees);
  std::vector<int> hosts;
  for (int rank = 0; rank < question.layout.ranks(); ++rank) {
    hosts.push_back(question.layout.host(rank));
  }
  const plan::Layout aligned(std::vector<int>(hosts.size(), 1), hosts);
  if (sent.messages == 0 || !algorithm.refuses(question.request, aligned).empty()) {
    fmt::print("\n");
    return;
  }
  const Sent least = sent_by_all(question, algorithm, aligned);
  fmt::print(
      ": a rank sends up to {} bytes instead of {} in an aligned layout ({:+.0f} %), all ranks {} "
      "instead of {}\n",
      sent.most, least.most,
      least.most > 0
          ? 100.0 * static_cast<double>(sent.most) / static_cast<double>(least.most) - 100
          : 0.0,
      sent.all, least.all);
}

void print_plan(const Question& question, const plan::Choice& choice, int rank) {
  const plan::Plan plan = choice.algorithm->make(question.request, question.layout, rank);
  fmt::print("\nplan of rank {} ({}): {} instructions; scratch {}, partial {}, slot {} elements\n",
             rank, choice.algorithm->name, plan.code.size(), plan.scratch_count, plan.partial_count,
             plan.slot_count);
  fmt::print("{}", text_of(plan, rank));
}

int run(const Options& options) {
  const Question question = understand(options);
  const plan::Situation situation{.layout = question.layout,
                                  .access = question.access,
                                  .order = question.order,
                                  .element_bytes = size_of(question.dtype),
                                  .costs = question.costs,
                                  .overrides = question.overrides,
                                  .slot_bytes = question.access == plan::Access::slots
                                                    ? staging_of(question).slot_bytes()
                                                    : kSlotBytesOfThreads};
  const plan::Choice choice = plan::select(question.request, situation);
  print_question(question, options.hosts);
  print_candidates(choice);
  if (!question.overrides.entries.empty()) {
    fmt::print("overrides: {} entries from {}\n", question.overrides.entries.size(),
               question.overrides_from);
  }
  print_figures(question.costs);
  if (choice.algorithm->slot_elements != nullptr) print_staging(question);
  print_traffic(question, choice);
  if (options.plan_of >= 0) print_plan(question, choice, options.plan_of);
  return 0;
}

}  // namespace

Command add_explain(CLI::App& application) {
  const auto options = std::make_shared<Options>();
  CLI::App* parser = application.add_subcommand(
      "explain", "Say which algorithm a collective takes, why, and what it sends");
  parser->add_option("collective", options->collective, "One of " + kind_names())
      ->type_name("")
      ->required();
  parser->add_option("-n,-t,-g,--ranks", options->ranks, "Number of ranks")
      ->type_name("N")
      ->capture_default_str();
  parser->add_option("-b,--bytes", options->bytes, "Size as `lockstep bench` counts it")
      ->type_name("SIZE")
      ->capture_default_str();
  parser->add_option("-d,--datatype", options->dtype, dtype_names())
      ->type_name("NAME")
      ->capture_default_str();
  parser
      ->add_option("--replicas", options->replicas,
                   "Replicas of every rank, or a list with one number for each rank (1,2,1)")
      ->type_name("N")
      ->capture_default_str();
  parser->add_option("--hosts", options->hosts, "Hosts; ranks side by side share one")
      ->type_name("N")
      ->capture_default_str();
  parser->add_option("-r,--root", options->root, "Root; of send_receive, the sender")
      ->type_name("RANK")
      ->capture_default_str();
  parser->add_option("--order", options->order, "Order of additions: fixed_tree or any")
      ->type_name("ORDER")
      ->capture_default_str();
  parser
      ->add_option(
          "--access", options->access,
          "messages, slots (processes of one host, buffers of the caller's) or shared (threads, "
          "memory of the session); default: shared on one host, else messages")
      ->type_name("ACCESS");
  parser
      ->add_option("--algorithms", options->algorithms,
                   "Which algorithm for which size, e.g. all_reduce=direct:0-64K,halving:64K-")
      ->type_name("TEXT");
  parser
      ->add_option("--costs", options->costs,
                   "Figures to use instead, e.g. tcp.alpha=20,tcp.bandwidth=1.2e9")
      ->type_name("TEXT");
  parser->add_option("--plan", options->plan_of, "Print this rank's instructions too")
      ->type_name("RANK")
      ->check(CLI::NonNegativeNumber);
  parser->footer(
      "A * marks the choice. Estimates are microseconds until the last rank is done.\n"
      "Examples:\n"
      "  lockstep explain all_reduce -n 8 -b 4M\n"
      "  lockstep explain all_reduce -n 2 --replicas 3 -b 1M --access messages\n"
      "  lockstep explain all_reduce -n 8 --hosts 2 -b 64M --order any --plan 3");
  return {parser, [options] { return run(*options); }};
}

}  // namespace lockstep::tool
