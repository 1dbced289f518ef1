#include "base/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"

namespace sandglass {
namespace {

ProcessEnd EndOf(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.signal = WTERMSIG(wait_status)};
  return {.status = WEXITSTATUS(wait_status)};
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::string& log) {
  SANDGLASS_CHECK(!arguments.empty(), "no program to run");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int failure = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    throw Error({.what = std::string("cannot run the program: ") + std::strerror(failure),
                 .where = arguments[0]});
  }
}

ChildProcess::~ChildProcess() {
  if (!end_) Kill();
}

ProcessEnd ChildProcess::Wait() {
  int status = 0;
  while (!end_) {
    if (::waitpid(pid_, &status, 0) == pid_) {
      end_ = EndOf(status);
    } else if (errno != EINTR) {
      throw Error({.what = std::string("lost a process: ") + std::strerror(errno)});
    }
  }
  return *end_;
}

std::optional<ProcessEnd> ChildProcess::Poll() {
  int status = 0;
  if (!end_ && ::waitpid(pid_, &status, WNOHANG) == pid_) end_ = EndOf(status);
  return end_;
}

void ChildProcess::Kill() {
  if (Poll()) return;
  ::kill(pid_, SIGKILL);
  Wait();
}

}  // namespace sandglass
