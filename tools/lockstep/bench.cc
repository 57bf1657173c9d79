// lockstep bench: collectives over ranks as threads, or over the processes that a launcher has
// started, with the options and columns of nccl-tests.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "all_texts.h"
#include "commands.h"
#include "lockstep/coll/join.h"
#include "names.h"
#include "pattern.h"
#include "plan/select.h"
#include "report.h"

namespace lockstep::tool {
namespace {

struct Options {
  std::vector<std::string> collectives = {"all_reduce"};
  std::string min_bytes = "4";
  std::string max_bytes = "16M";
  std::string step_bytes;
  int factor = 0;
  std::optional<int> ranks;
  int iterations = 20;
  int warmups = 5;
  std::string op = "sum";
  std::string dtype = "float32";
  int check = 1;
  int root = 0;
  std::string json;
  std::string algorithms;
  std::string order = "fixed_tree";
  std::string wire = "same";
  std::string memory = "own";
};

int default_threads() { return std::max(2, static_cast<int>(std::thread::hardware_concurrency())); }

/// What must be the same on all ranks, as it was given.
std::string agreed_text(const Options& options) {
  return fmt::format(
      "{} -b {} -e {} -f {} -i {} -n {} -w {} -o {} -d {} -c {} -r {} --order {} "
      "--wire {} --algorithms \"{}\" --memory {}",
      fmt::join(options.collectives, " "), options.min_bytes, options.max_bytes, options.factor,
      options.step_bytes.empty() ? "0" : options.step_bytes, options.iterations, options.warmups,
      options.op, options.dtype, options.check, options.root, options.order, options.wire,
      options.algorithms, options.memory);
}

void require_range(const char* option, int value, int low, int high) {
  if (value < low || value > high) {
    throw UsageError(fmt::format("{} is {}; it must be from {} to {}", option, value, low, high));
  }
}

/// The sizes -b, -e, -f and -i ask for.
std::vector<std::uint64_t> sizes(const Options& options) {
  const std::uint64_t low = parse_size("-b", options.min_bytes);
  const std::uint64_t high = parse_size("-e", options.max_bytes);
  if (low > high) {
    throw UsageError(
        fmt::format("-b {} is larger than -e {}", options.min_bytes, options.max_bytes));
  }
  if (options.factor != 0 && !options.step_bytes.empty()) {
    throw UsageError("-f and -i exclude each other");
  }
  std::uint64_t step = 0;
  if (!options.step_bytes.empty()) {
    step = parse_size("-i", options.step_bytes);
    if (step == 0) throw UsageError("-i is 0; sizes must grow");
  }
  const std::uint64_t factor = options.factor == 0 ? 4 : static_cast<std::uint64_t>(options.factor);
  std::vector<std::uint64_t> all;
  for (std::uint64_t size = low;;) {
    all.push_back(size);
    if (step == 0 && size > high / factor) return all;
    const std::uint64_t next = step != 0 ? size + step : std::max(size * factor, size + 1);
    if (next > high || next < size) return all;
    size = next;
  }
}

struct Combination {
  DType dtype;
  Op op;
};

/// Types and operations; pairs that do not exist are left out if one of both is "all".
std::vector<Combination> combinations(plan::Kind kind, const Options& options) {
  if (kind == plan::Kind::barrier) return {{DType::uint8, Op::sum}};
  const std::vector<DType> dtypes = parse_dtypes(options.dtype);
  const std::vector<Op> ops = reduces(kind) ? parse_ops(options.op) : std::vector{Op::sum};
  const bool some = options.dtype == "all" || options.op == "all";
  std::vector<Combination> all;
  for (const DType dtype : dtypes) {
    for (const Op op : ops) {
      const std::string refusal = reduces(kind) ? refuses(op, dtype) : "";
      if (refusal.empty()) {
        all.push_back({dtype, op});
      } else if (!some) {
        throw UsageError(refusal);
      }
    }
  }
  return all;
}

/// `group` is null for threads.
Row measure_row(Trial trial, coll::Session* group) {
  const auto timed = [&](Placement placement) {
    trial.placement = placement;
    return group != nullptr ? measure(trial, *group) : measure(trial);
  };
  Row row{.trial = trial, .out_of_place = {}, .in_place = {}};
  if (has_out_of_place(trial.kind)) row.out_of_place = timed(Placement::out_of_place);
  if (has_in_place(trial.kind)) row.in_place = timed(Placement::in_place);
  return row;
}

coll::WireType wire_of(const Options& options) {
  if (options.wire == "same") return coll::WireType::same;
  if (options.wire == "bf16") return coll::WireType::bf16;
  if (options.wire == "f16") return coll::WireType::f16;
  throw UsageError(fmt::format("--wire is \"{}\"; it must be same, bf16 or f16", options.wire));
}

/// Only sums of float32 can travel as something else.
void check_wire(const Options& options, plan::Kind kind, const Combination& combination) {
  const bool adds = combination.op == Op::sum || combination.op == Op::mean;
  if (options.wire == "same" ||
      (kind == plan::Kind::all_reduce && combination.dtype == DType::float32 && adds)) {
    return;
  }
  throw UsageError(
      fmt::format("--wire {} is for all_reduce with -o sum or mean of float32", options.wire));
}

/// Everything that will be measured; all mistakes are found before the first measurement.
std::vector<std::vector<Trial>> trials(const Options& options, int ranks) {
  require_range("-t", ranks, 1, Pattern::kMaxRanks);
  require_range("-n", options.iterations, 1, 1'000'000);
  require_range("-w", options.warmups, 0, 1'000'000);
  require_range("-r", options.root, 0, ranks - 1);
  require_range("-c", options.check, 0, 1);
  if (options.factor != 0) require_range("-f", options.factor, 2, 1 << 20);
  if (options.order != "any" && options.order != "fixed_tree") {
    throw UsageError(fmt::format("--order is \"{}\"; it must be fixed_tree or any", options.order));
  }
  if (options.memory != "own" && options.memory != "session") {
    throw UsageError(fmt::format("--memory is \"{}\"; it must be own or session", options.memory));
  }
  const coll::WireType wire = wire_of(options);
  plan::Overrides ignored;
  const Status algorithms = plan::parse_overrides(options.algorithms, ignored);
  if (!algorithms.ok()) throw UsageError(algorithms.message());
  const std::vector<std::uint64_t> bytes = sizes(options);
  std::vector<std::vector<Trial>> all;
  for (const std::string& name : options.collectives) {
    const plan::Kind kind = parse_kind(name);
    if (kind == plan::Kind::send_receive && ranks < 2) {
      throw UsageError("send_receive needs 2 ranks or more (-t)");
    }
    all.emplace_back();
    for (const Combination& combination : combinations(kind, options)) {
      check_wire(options, kind, combination);
      std::uint64_t last = UINT64_MAX;
      for (const std::uint64_t size : bytes) {
        const Shape shape = shape_of(kind, size, combination.dtype, ranks);
        if (shape.bytes == last) continue;  // rounding made them equal
        last = shape.bytes;
        all.back().push_back(
            {.kind = kind,
             .dtype = combination.dtype,
             .op = combination.op,
             .shape = shape,
             .ranks = ranks,
             .root = options.root,
             .iterations = options.iterations,
             .warmups = options.warmups,
             .checking = options.check == 1 ? Checking::on : Checking::off,
             .memory = options.memory == "session" ? Owner::session : Owner::rank,
             .order = options.order == "any" ? coll::SumOrder::any : coll::SumOrder::fixed_tree,
             .wire = wire,
             .algorithms = options.algorithms});
      }
    }
  }
  return all;
}

/// Measures everything; `group` is null for threads. Only rank 0 prints and writes.
int run_tables(const Options& options, const std::vector<std::vector<Trial>>& tables,
               coll::Session* group) {
  const bool reports = group == nullptr || group->rank() == 0;
  if (reports && !options.json.empty() && !std::ofstream(options.json)) {
    throw std::runtime_error(fmt::format("cannot write {}", options.json));
  }
  std::vector<Row> rows;
  for (const std::vector<Trial>& table : tables) {
    if (reports) fmt::print("{}", head(table.front()));
    for (const Trial& trial : table) {
      rows.push_back(measure_row(trial, group));
      if (reports) fmt::print("{}", line(rows.back()));
      std::fflush(stdout);
    }
  }
  if (!reports) return 0;
  fmt::print("{}", summary(rows));
  if (!options.json.empty()) write_json(options.json, rows);
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.wrong() > 0; });
}

/// Ranks that measure different things would wait for each other: who was told what is compared
/// first.
void compare_options(const Options& options, coll::Session& group) {
  const std::vector<std::string> texts = all_texts(group, agreed_text(options));
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    throw UsageError(
        fmt::format("the ranks were given different options: rank 0 \"{}\", rank {} \"{}\"",
                    texts[0], rank, texts[rank]));
  }
}

Ground ground_of(const coll::Session& group) {
  std::set<int> hosts;
  for (int rank = 0; rank < group.size(); ++rank) hosts.insert(group.host(rank));
  return {.hosts = static_cast<int>(hosts.size()), .transport = group.transport()};
}

int run_processes(const Options& options, coll::JoinOptions joining) {
  const int ranks = static_cast<int>(joining.addresses.size());
  if (options.ranks && *options.ranks != ranks) {
    throw UsageError(
        fmt::format("-t is {}, but {} ranks were started; leave -t out", *options.ranks, ranks));
  }
  auto tables = trials(options, ranks);
  joining.options.algorithms = options.algorithms;
  coll::Session group = coll::join(joining);
  compare_options(options, group);
  const Ground ground = ground_of(group);
  for (auto& table : tables) {
    for (Trial& trial : table) trial.ground = ground;
  }
  return run_tables(options, tables, &group);
}

int run(const Options& options) {
  coll::JoinOptions joining = coll::join_options_from_environment();
  if (joining.addresses.size() > 1) return run_processes(options, std::move(joining));
  return run_tables(options, trials(options, options.ranks.value_or(default_threads())), nullptr);
}

}  // namespace

Command add_bench(CLI::App& application) {
  const auto options = std::make_shared<Options>();
  CLI::App* parser = application.add_subcommand(
      "bench", "Measure collectives over threads, or over the processes of a launcher");
  parser->add_option("collective", options->collectives, "Any of " + kind_names())
      ->type_name("")
      ->capture_default_str();
  parser->add_option("-b,--minbytes", options->min_bytes, "First size, with K, M or G")
      ->type_name("SIZE")
      ->capture_default_str();
  parser->add_option("-e,--maxbytes", options->max_bytes, "Last size")
      ->type_name("SIZE")
      ->capture_default_str();
  parser->add_option("-f,--stepfactor", options->factor, "Factor from size to size (4)")
      ->type_name("N");
  parser->add_option("-i,--stepbytes", options->step_bytes, "Step from size to size, instead of -f")
      ->type_name("SIZE");
  parser
      ->add_option("-t,-g,--ranks", options->ranks,
                   fmt::format("Number of ranks, each a thread ({}); under a launcher its own",
                               default_threads()))
      ->type_name("N");
  parser->add_option("-n,--iters", options->iterations, "Iterations that are timed")
      ->type_name("N")
      ->capture_default_str();
  parser->add_option("-w,--warmup_iters", options->warmups, "Iterations before them")
      ->type_name("N")
      ->capture_default_str();
  parser->add_option("-o,--op", options->op, op_names() + " or all")
      ->type_name("NAME")
      ->capture_default_str();
  parser->add_option("-d,--datatype", options->dtype, dtype_names() + " or all")
      ->type_name("NAME")
      ->capture_default_str();
  parser->add_option("-r,--root", options->root, "Root of the collectives that have one")
      ->type_name("RANK")
      ->capture_default_str();
  parser->add_option("-c,--check", options->check, "1: count wrong elements, 0: do not look")
      ->type_name("0|1")
      ->capture_default_str();
  parser->add_option("-J,--json", options->json, "Write all figures to this file")
      ->type_name("FILE");
  parser->add_option("--order", options->order, "Order of additions: fixed_tree or any")
      ->type_name("ORDER")
      ->capture_default_str();
  parser->add_option("--wire", options->wire, "What travels: same, or float32 as bf16 or f16")
      ->type_name("TYPE")
      ->capture_default_str();
  parser
      ->add_option("--algorithms", options->algorithms,
                   "Which algorithm for which size, e.g. all_reduce=direct:0-64K,halving:64K-")
      ->type_name("TEXT");
  parser->add_option("--memory", options->memory, "Buffers: own, or of the session")
      ->type_name("own|session")
      ->capture_default_str();
  parser->footer(
      "Started by lockstep launch, mpirun, srun, torchrun or with TF_CONFIG as one of several "
      "ranks,\n"
      "it joins the others; rank 0 prints. Else ranks are threads of this process.\n"
      "Bandwidths, counts and sizes are defined as in nccl-tests.\n"
      "Exit code 1 if an element was wrong.\n"
      "Examples:\n"
      "  lockstep bench                                     all_reduce, 4 B to 16 MiB\n"
      "  lockstep bench all_reduce -b 4 -e 64M -f 4 -t 2\n"
      "  lockstep bench all_gather broadcast -b 1M -e 1M -d all -J figures.json\n"
      "  lockstep bench all_reduce -t 4 --algorithms all_reduce=ring --order any\n"
      "  lockstep bench all_reduce -b 16M -e 16M --wire bf16\n"
      "  lockstep launch -n 4 --no-prefix -- lockstep bench all_reduce --memory session");
  return {parser, [options] { return run(*options); }};
}

}  // namespace lockstep::tool
