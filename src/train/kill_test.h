// Proves on the machine and the disk at hand that training survives: it is killed again and again,
// in the middle of saves too, and its disk fills up; every time it must end with the weights, the
// losses and the metrics of the run that nothing disturbed.
#pragma once

#include <cstdint>
#include <string>

#include "base/progress.h"

namespace sandglass {

struct KillTestOptions {
  std::string program;  // path of the sandglass program
  std::string
      directory;  // on the disk that is to be tested; must not exist, removed if all is well
  int kills = 200;
  uint64_t seed = 1;  // of the moments
  ProgressMode progress = ProgressMode::kAutomatic;
};

struct KillTestReport {
  int kills = 0;                   // with SIGKILL
  int kills_in_save = 0;           // of these while a checkpoint was being written
  int runs = 0;                    // that were killed and continued until they finished
  int64_t checkpoints = 0;         // looked at after a kill or a full disk; none may be damaged
  int full_disks = 0;              // times that the disk was full
  std::string full_disk_obstacle;  // why a small disk could not be had, if none was tried
  std::string weights_hash;        // that every run ended with
  double seconds = 0.0;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("kills", self.kills, "with SIGKILL");
    field("kills_in_save", self.kills_in_save, "while a checkpoint was being written");
    field("runs", self.runs, "killed and continued until they finished");
    field("checkpoints", self.checkpoints, "looked at after a kill or a full disk");
    field("full_disks", self.full_disks, "times that the disk was full");
    field("full_disk_obstacle", self.full_disk_obstacle, "why a small disk could not be had");
    field("weights_hash", self.weights_hash, "of every run");
    field("seconds", self.seconds, "that the test took");
  }
};

// Throws Error that says what was lost, and leaves the directory for a look at it, if a run ends
// otherwise than the undisturbed one or a checkpoint is damaged; throws Interrupted on request.
KillTestReport RunKillTest(const KillTestOptions& options);

}  // namespace sandglass
