#include "train/kill_test.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/process.h"
#include "base/random.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kSteps = 60;
constexpr int kCheckpointEvery = 2;

[[noreturn]] void FailTest(const std::string& what, const std::string& where) {
  throw Error({.what = what,
               .where = where,
               .expected = "the weights, losses and checkpoints of the undisturbed run",
               .remedy = "the directory was left for a look at it; do not trust this machine or "
                         "disk with a long run"});
}

// A run in which everything that is state takes part: momentum and moments, averaged weights, a
// growing batch, the window of the spike detector.
RunConfig SmallRun(const std::string& data) {
  RunConfig config;
  config.name = "selftest";
  config.model.family = Family::kHourglass;
  config.model.config = FamilyConfig(Family::kHourglass, Shape::Parse("L2-d64-a4x16-f2x48"), 0);
  config.data.path = data;
  config.train.batch = 4;
  config.train.batch_start = 1;
  config.train.batch_warmup_steps = 20;
  config.train.length = 32;
  // The batch is 1, 2 and 3 for 7, 7 and 6 steps, then 4.
  config.train.tokens = (7 * 1 + 7 * 2 + 6 * 3 + (kSteps - 20) * 4) * 32;
  config.train.eval_every = 20;
  config.train.eval_tokens = 64;
  config.train.checkpoint_every = kCheckpointEvery;
  config.train.average_decay = 0.9;
  config.train.spikes = {.z_score = 2.0, .window = 10};
  config.optimizer.kind = OptimizerKind::kMuon;
  config.system.threads = 1;
  return config;
}

// Words in random order, a paragraph to a document.
std::string SomeText() {
  constexpr const char* kWords[] = {"sand",   "runs",  "through", "the",
                                    "narrow", "glass", "and",     "back"};
  RandomStream random(1, "selftest text");
  std::string text;
  for (int document = 0; document < 60; ++document) {
    for (int word = 0; word < 40; ++word) text += std::string(kWords[random.NextBelow(8)]) + " ";
    text += "\n\n";
  }
  return text;
}

class KillTest {
 public:
  explicit KillTest(const KillTestOptions& options)
      : options_(options),
        root_(fs::absolute(options.directory).string()),
        random_(options.seed, "kills") {}

  KillTestReport Run();

 private:
  // Runs the program and waits; Error with what it printed if it fails.
  void Do(const std::vector<std::string>& arguments);
  ChildProcess StartTraining(const std::string& run) const {
    return ChildProcess({options_.program, "train", root_ + "/run.toml", "--out", run}, Log());
  }
  void Prepare();
  // Kills one run at random moments until it has finished or `report_.kills` is what was asked.
  void KillRepeatedly(const std::string& run, Progress& progress);
  // Waits for a random moment, any or one inside a save, and kills. False if the run ended before.
  bool KillOnce(ChildProcess& training, const std::string& run);
  // Every checkpoint under its name is whole, and none is older than those before.
  void CheckCheckpoints(const std::string& run);
  void CheckFinished(const std::string& run);
  // Trains on file systems that are too small, in a mount namespace of its own.
  void FillDisks();
  int TrainOnSmallDisks();
  std::string Log() const { return root_ + "/log.txt"; }

  const KillTestOptions& options_;
  std::string root_;
  RandomStream random_;
  KillTestReport report_;
  double whole_seconds_ = 0.0;
  RunMetrics expected_;
  RunResult expected_result_;
  int64_t newest_step_ = 0;
};

void KillTest::Do(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {options_.program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  ChildProcess child(command, Log());
  if (!child.Wait().succeeded()) {
    throw Error({.what = fmt::format("`{}` failed: {}", fmt::join(command, " "), ReadFile(Log())),
                 .where = root_});
  }
}

void KillTest::Prepare() {
  if (fs::exists(root_)) {
    throw Error({.what = "the directory is there already",
                 .where = root_,
                 .remedy = "name one that does not exist; it is removed afterwards"});
  }
  CreateDirectories(root_);
  WriteFileAtomically(root_ + "/text.txt", SomeText());
  Do({"tokenizer", "train", "--vocabulary", "280", "--documents", "paragraph", "--out",
      root_ + "/tokenizer.json", root_ + "/text.txt"});
  Do({"prepare", "--tokenizer", root_ + "/tokenizer.json", "--documents", "paragraph",
      "--validation", "0.1", "--out", root_ + "/data", root_ + "/text.txt"});
  WriteFileAtomically(root_ + "/run.toml", ToToml(WriteFields(SmallRun(root_ + "/data"))));
  const Clock::time_point start = Clock::now();
  const std::string whole = root_ + "/whole";
  ChildProcess training = StartTraining(whole);
  if (!training.Wait().succeeded()) {
    throw Error({.what = "the undisturbed run failed: " + ReadFile(Log()), .where = root_});
  }
  whole_seconds_ = Seconds(Clock::now() - start).count();
  expected_ = ReadMetrics(whole);
  expected_result_ = FindResult(whole).value();
  report_.weights_hash = expected_result_.weights_hash;
}

bool KillTest::KillOnce(ChildProcess& training, const std::string& run) {
  // Every other kill waits for a save and comes somewhere inside it.
  const bool aims = random_.NextBelow(2) == 0;
  const auto sleep = [&](double seconds) { std::this_thread::sleep_for(Seconds(seconds)); };
  if (aims) {
    const uint64_t saves_to_skip = random_.NextBelow(4);
    uint64_t saves = 0;
    bool was_saving = false;
    while (!training.Poll()) {
      bool saving = false;
      std::error_code missing;
      for (const auto& entry : fs::directory_iterator(CheckpointsPath(run), missing)) {
        if (entry.path().extension() == ".partial") saving = true;
      }
      if (saving && !was_saving && saves++ == saves_to_skip) break;
      was_saving = saving;
      sleep(1e-4);
    }
    const double save_seconds = whole_seconds_ / kSteps;
    sleep(random_.NextUniform() * save_seconds);
  } else {
    const Clock::time_point deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(
                           Seconds(random_.NextUniform() * whole_seconds_ / 2));
    while (!training.Poll() && Clock::now() < deadline) sleep(1e-4);
  }
  if (training.Poll()) return false;
  training.Kill();
  if (training.Wait().signal == 0) return false;
  ++report_.kills;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(CheckpointsPath(run), missing)) {
    if (entry.path().extension() != ".partial") continue;
    ++report_.kills_in_save;
    break;
  }
  return true;
}

void KillTest::KillRepeatedly(const std::string& run, Progress& progress) {
  newest_step_ = 0;
  while (true) {
    if (InterruptRequested()) throw Interrupted{"nothing was proved"};
    ChildProcess training = StartTraining(run);
    if (report_.kills < options_.kills && KillOnce(training, run)) {
      CheckCheckpoints(run);
      progress.Update(report_.kills, fmt::format("{} in a save", report_.kills_in_save));
      continue;
    }
    if (!training.Wait().succeeded())
      FailTest("the run could not be continued: " + ReadFile(Log()), run);
    return CheckFinished(run);
  }
}

void KillTest::CheckCheckpoints(const std::string& run) {
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(CheckpointsPath(run), missing)) {
    const std::string suffix = entry.path().extension();
    if (suffix == ".partial" || suffix == ".removed") continue;
    ++report_.checkpoints;
    const std::string damage = DamageOf(entry.path().string());
    if (!damage.empty()) FailTest("a checkpoint is damaged: " + damage, entry.path().string());
  }
  const auto newest = FindCheckpoint(run, [](std::string_view) {});
  if (!newest && newest_step_ > 0) FailTest("the checkpoints are gone", run);
  if (!newest) return;
  TrainState state;
  const std::string path = *newest + "/state.json";
  ReadAllFields(state, {.values = Json::parse(ReadFile(path)), .source = path});
  if (state.step < newest_step_) FailTest("the newest checkpoint is gone", run);
  newest_step_ = state.step;
}

void KillTest::CheckFinished(const std::string& run) {
  ++report_.runs;
  const RunResult result = FindResult(run).value();
  if (result.weights_hash != expected_result_.weights_hash) {
    FailTest(fmt::format("the run ended with the weights {}, not {}", result.weights_hash,
                         expected_result_.weights_hash),
             run);
  }
  if (result.validation_loss != expected_result_.validation_loss ||
      result.average_validation_loss != expected_result_.average_validation_loss) {
    FailTest("the run ended with another validation loss", run);
  }
  const RunMetrics metrics = ReadMetrics(run);
  bool same = metrics.steps.size() == expected_.steps.size();
  for (size_t i = 0; same && i < metrics.steps.size(); ++i) {
    const StepMetrics& a = metrics.steps[i];
    const StepMetrics& b = expected_.steps[i];
    same = a.step == b.step && a.loss == b.loss && a.learning_rate == b.learning_rate &&
           a.sequences == b.sequences && a.gradient_norm == b.gradient_norm;
  }
  if (!same) FailTest("the metrics are not those of the undisturbed run", run);
  fs::remove_all(run);
}

int KillTest::TrainOnSmallDisks() {
  // From too small for anything up to room for all, in steps of less than half a checkpoint.
  int64_t checkpoint_bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root_ + "/whole/checkpoints")) {
    if (entry.is_regular_file()) checkpoint_bytes += static_cast<int64_t>(entry.file_size());
  }
  checkpoint_bytes /= 2;  // two are kept
  const std::string disk = root_ + "/small";
  const std::string run = disk + "/run";
  int full = 0;
  for (int64_t size = checkpoint_bytes / 50;; size += checkpoint_bytes * 3 / 7) {
    const std::string option = fmt::format("size={}", size);
    const unsigned long flags = full == 0 ? 0 : MS_REMOUNT;
    if (::mount("tmpfs", disk.c_str(), "tmpfs", flags, option.c_str()) != 0) return -1;
    ChildProcess training = StartTraining(run);
    if (training.Wait().succeeded()) break;
    if (training.Wait().signal != 0) FailTest("training crashed on a full disk", run);
    CheckCheckpoints(run);
    if (++full > 100) FailTest("training never succeeded: " + ReadFile(Log()), run);
  }
  CheckFinished(run);
  return full;
}

void KillTest::FillDisks() {
  CreateDirectories(root_ + "/small");
  newest_step_ = 0;
  const std::string outcome_path = root_ + "/full-disk.json";
  // A process of its own may have mounts of its own, which end with it.
  const pid_t child = ::fork();
  if (child == 0) {
    Json outcome;
    try {
      const uid_t uid = ::getuid();
      const gid_t gid = ::getgid();
      if (::unshare(CLONE_NEWNS) == 0) {
        outcome["mounts"] = true;
      } else if (::unshare(CLONE_NEWNS | CLONE_NEWUSER) == 0) {
        std::ofstream("/proc/self/setgroups") << "deny";
        std::ofstream("/proc/self/uid_map") << fmt::format("0 {} 1", uid);
        std::ofstream("/proc/self/gid_map") << fmt::format("0 {} 1", gid);
        outcome["mounts"] = true;
      }
      if (outcome.contains("mounts")) {
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
        outcome["full"] = TrainOnSmallDisks();
        outcome["checkpoints"] = report_.checkpoints;
      }
    } catch (const Error& failure) {
      outcome["error"] = failure.parts().what;
    }
    WriteFileAtomically(outcome_path, outcome.dump());
    ::_exit(0);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) {
    report_.full_disk_obstacle = "no process could be started for it";
    return;
  }
  const Json outcome = Json::parse(ReadFile(outcome_path));
  if (outcome.contains("error")) FailTest(outcome["error"].get<std::string>(), root_ + "/small");
  const int full = outcome.value("full", -1);
  if (full < 0) {
    report_.full_disk_obstacle = "mounting a small file system is not allowed here";
    return;
  }
  report_.full_disks = full;
  report_.checkpoints = outcome["checkpoints"].get<int64_t>();
  ++report_.runs;
}

KillTestReport KillTest::Run() {
  const Clock::time_point start = Clock::now();
  Prepare();
  FillDisks();
  Progress progress("selftest", options_.kills, "kills", options_.progress);
  while (report_.kills < options_.kills) {
    KillRepeatedly(fmt::format("{}/run-{}", root_, report_.runs), progress);
  }
  progress.Finish();
  fs::remove_all(root_);
  report_.seconds = Seconds(Clock::now() - start).count();
  return report_;
}

}  // namespace

KillTestReport RunKillTest(const KillTestOptions& options) { return KillTest(options).Run(); }

}  // namespace sandglass
