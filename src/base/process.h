// Running another program.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace sandglass {

// How a process ended: an exit status, or the signal that ended it.
struct ProcessEnd {
  int status = 0;
  int signal = 0;

  bool succeeded() const { return status == 0 && signal == 0; }
};

// A program that runs beside this one. Killed if the object is destroyed before it has ended.
class ChildProcess {
 public:
  // arguments[0] is the program's path. Standard input is empty; standard output and error go to
  // the file `log`. Throws Error if it cannot be started.
  ChildProcess(const std::vector<std::string>& arguments, const std::string& log);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Waits until it ends.
  ProcessEnd Wait();
  // How it ended, or nothing while it runs.
  std::optional<ProcessEnd> Poll();
  // SIGKILL. A process that has ended already keeps its end.
  void Kill();

 private:
  pid_t pid_ = -1;
  std::optional<ProcessEnd> end_;
};

}  // namespace sandglass
