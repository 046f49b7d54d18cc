//! The commands, one file each. A new command is a variant in `args`, a file here, and an arm below.

mod bench;
mod bench_machine;
mod chat;
mod completions;
mod config_check;
mod config_schema;
mod config_show;
mod detokenize;
mod devices;
mod doctor;
mod eval_kernels;
mod eval_perplexity;
mod eval_top;
mod explain;
mod lossless;
mod man;
mod models_inspect;
mod models_pair;
mod models_verify;
mod plugins_inspect;
mod plugins_install;
mod plugins_list;
mod plugins_new;
mod plugins_paths;
mod plugins_remove;
mod plugins_rescan;
mod plugins_switch;
mod plugins_test;
mod plugins_test_strategy;
mod plugins_use;
mod plugins_verify;
mod plugins_verify_installed;
mod plugins_verify_lossless;
mod run;
mod run_report;
mod speculation_report;
mod tokenize;
mod tools_export_states;
mod tools_trim_head;

pub use plugins_list::state as plugins_state;

use crate::app::App;
use crate::args::{Command, ConfigCommand, EvalCommand, ModelsCommand, PluginsCommand, ToolsCommand};
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the command that was typed.
pub fn run(command: &Command, app: &mut App) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::run(args, app),
        Command::Chat(args) => chat::run(args, app),
        Command::Eval(EvalCommand::Top(args)) => eval_top::run(args, app),
        Command::Eval(EvalCommand::Perplexity(args)) => eval_perplexity::run(args, app),
        Command::Eval(EvalCommand::Kernels(args)) => eval_kernels::run(args, app),
        Command::Bench(args) if args.machine => bench_machine::run(args, app),
        Command::Bench(args) => bench::run(args, app),
        Command::Explain(args) => explain::run(args, app),
        Command::Config(ConfigCommand::Check(args)) => config_check::run(args, app),
        Command::Config(ConfigCommand::Show(args)) => config_show::run(args, app),
        Command::Config(ConfigCommand::Schema(args)) => config_schema::run(args, app),
        Command::Models(ModelsCommand::Inspect(args)) => models_inspect::run(args, app),
        Command::Models(ModelsCommand::Verify(args)) => models_verify::run(args, app),
        Command::Models(ModelsCommand::Pair(args)) => models_pair::run(args, app),
        Command::Tokenize(args) => tokenize::run(args, app),
        Command::Detokenize(args) => detokenize::run(args, app),
        Command::Plugins(PluginsCommand::List(args)) => plugins_list::run(args, app),
        Command::Plugins(PluginsCommand::Inspect(args)) => plugins_inspect::run(args, app),
        Command::Plugins(PluginsCommand::Paths(args)) => plugins_paths::run(args, app),
        Command::Plugins(PluginsCommand::Rescan(args)) => plugins_rescan::run(args, app),
        Command::Plugins(PluginsCommand::Verify(args)) => plugins_verify::run(args, app),
        Command::Plugins(PluginsCommand::Test(args)) => plugins_test::run(args, app),
        Command::Plugins(PluginsCommand::Install(args)) => plugins_install::run(args, app),
        Command::Plugins(PluginsCommand::Remove(args)) => plugins_remove::run(args, app),
        Command::Plugins(PluginsCommand::Enable(args)) => plugins_switch::run(args, true, app),
        Command::Plugins(PluginsCommand::Disable(args)) => plugins_switch::run(args, false, app),
        Command::Plugins(PluginsCommand::Use(args)) => plugins_use::run(args, app),
        Command::Plugins(PluginsCommand::New(args)) => plugins_new::run(args, app),
        Command::Devices(args) => devices::run(args, app),
        Command::Doctor(args) => doctor::run(args, app),
        Command::Tools(ToolsCommand::TrimHead(args)) => tools_trim_head::run(args, app),
        Command::Tools(ToolsCommand::ExportStates(args)) => tools_export_states::run(args, app),
        Command::Completions(args) => completions::run(args, app),
        Command::Man(args) => man::run(args, app),
    }
}
