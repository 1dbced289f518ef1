// The command line: one verb per file. Each function below adds its subcommand to the program and
// is defined in the file of its name (plan_verb.cc, ...). Verbs are the only code that prints
// results; what they call returns values or throws Error.
#pragma once

#include <CLI/CLI.hpp>

namespace sandglass {

void AddPlanVerb(CLI::App& program);
void AddTokenizerVerb(CLI::App& program);
void AddPrepareVerb(CLI::App& program);
void AddDataVerb(CLI::App& program);
void AddTrainVerb(CLI::App& program);
void AddEvalVerb(CLI::App& program);
void AddExportVerb(CLI::App& program);
void AddGenerateVerb(CLI::App& program);
void AddImportVerb(CLI::App& program);
void AddLogitsVerb(CLI::App& program);
void AddCompareVerb(CLI::App& program);
void AddInspectVerb(CLI::App& program);
void AddRunsVerb(CLI::App& program);
void AddBenchVerb(CLI::App& program);
void AddSelftestVerb(CLI::App& program);

// Help that teaches by example: shown under the options of `sandglass VERB --help`.
inline void AddExamples(CLI::App& verb, const char* examples) { verb.footer(examples); }

}  // namespace sandglass
