// What a power cut can leave: only what was synced is on the disk. The calls of this program that
// sync files are its own here, and are watched.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "train/metrics.h"
#include "train/testing.h"

namespace {

std::mutex mutex;
std::function<void(const std::string&)> watch;  // gets the path of what is synced, before it is

void Watch(int descriptor) {
  const std::lock_guard lock(mutex);
  if (!watch) return;
  std::error_code ignored;
  watch(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), ignored));
}

}  // namespace

extern "C" int fsync(int descriptor) {
  Watch(descriptor);
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

extern "C" int fdatasync(int descriptor) {
  Watch(descriptor);
  return static_cast<int>(::syscall(SYS_fdatasync, descriptor));
}

namespace sandglass {
namespace {

namespace fs = std::filesystem;

class Durability : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    root_ = fs::canonical(root_).string();
  }
  void TearDown() override {
    SetWatch({});
    TrainTest::TearDown();
  }
  static void SetWatch(std::function<void(const std::string&)> function) {
    const std::lock_guard lock(mutex);
    watch = std::move(function);
  }
};

TEST_F(Durability, NoCheckpointIsOnTheDiskBeforeTheMetricsOfItsSteps) {
  config_.train.checkpoint_every = 3;
  for (const bool background : {false, true}) {
    const std::string name = background ? "background" : "foreground";
    config_.system.background_saves = background;
    const std::string metrics = MetricsPath(root_ + "/" + name);
    int64_t synced_step = 0;
    std::vector<int64_t> checkpoints;
    SetWatch([&](const std::string& path) {
      if (path == metrics) {
        for (const StepMetrics& step : ReadMetrics(root_ + "/" + name).steps) {
          synced_step = std::max(synced_step, step.step);
        }
      }
      // A manifest is the last that a checkpoint waits for before it gets its name.
      const size_t at = path.find("/step-");
      if (at == std::string::npos || path.find("manifest.json") == std::string::npos) return;
      checkpoints.push_back(std::stoll(path.substr(at + 6, 8)));
      EXPECT_GE(synced_step, checkpoints.back()) << name;
    });
    Run(name, config_);
    SetWatch({});
    EXPECT_EQ(checkpoints, (std::vector<int64_t>{3, 6, 8}));
  }
}

}  // namespace
}  // namespace sandglass
