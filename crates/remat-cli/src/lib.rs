//! The `remat` command line, as a library: the binary and the Python package run the very same code.
//!
//! Exit codes: 0 done, 1 the input is at fault (one line on standard error says how), 2 the arguments are. SIGINT,
//! SIGTERM and SIGHUP end the process, as shells show by 130, 143 and 129; files that were not complete yet are called
//! `NAME.partial`. The first SIGINT while a step's plan is searched ends the search only.

mod affordable;
mod arguments;
mod commands;
mod failure;
mod interrupt;
mod log;
mod memory;
mod plan_file;
mod progress;
mod replays;
mod selective;
mod standard_streams;
mod table;
mod terminal;

use arguments::{Arguments, Command, PlanCommand, TraceCommand, VerifyCommand, one_line};
use clap::Parser;
use clap::error::ErrorKind;
use commands::{figures, min_budget, plan, policies, simulate, trace, verify};
use failure::{Failure, complain};
use interrupt::Watch;
use standard_streams::check_inputs;
use std::ffi::OsString;
use std::path::Path;

/// Runs `remat` with these arguments, of which the first is the program's name, and returns its exit code.
///
/// Output goes to standard output and standard error; nothing is printed, and 0 returned, once the reader of the
/// output is gone.
///
/// ```
/// let arguments = ["remat", "trace", "check", "no-such-file"];
/// assert_eq!(remat_cli::main_with(arguments.map(Into::into).to_vec()), 1);
/// ```
pub fn main_with(args: Vec<OsString>) -> i32 {
    main_removing(args, None)
}

/// [`main_with`], for input in a temporary folder: where a signal ends the process, the folder is removed before.
pub fn main_removing(args: Vec<OsString>, temporary: Option<&Path>) -> i32 {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(answer) => return told(&answer),
    };
    let watch = Watch::start(temporary);
    match perform(arguments.command, &watch) {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}

/// Prints help, the version, or what is wrong with the arguments; returns the exit code.
fn told(answer: &clap::Error) -> i32 {
    if answer.use_stderr() && answer.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        complain(format_args!("{}", one_line(&answer.to_string())));
        return answer.exit_code();
    }
    match answer.print() {
        // Help and version are answers too.
        Err(error) if !answer.use_stderr() => Failure::output(error).report(),
        _ => answer.exit_code(),
    }
}

fn perform(command: Command, watch: &Watch) -> Result<(), Failure> {
    match command {
        Command::Trace {
            command: TraceCommand::Info { file, json },
        } => trace::info::run(&file, json),
        Command::Trace {
            command: TraceCommand::Check { file },
        } => trace::check::run(&file),
        Command::Trace {
            command: TraceCommand::Convert { input, output, to },
        } => trace::convert::run(&input, &output, to.map(Into::into)),
        Command::Simulate(simulation) => simulate::run(&simulation),
        Command::MinBudget(search) => min_budget::run(&search),
        Command::Figures(figures) => figures::run(&figures),
        Command::Plan {
            command: PlanCommand::Chain(wanted),
        } => plan::chain::run(&wanted),
        Command::Plan {
            command: PlanCommand::Cut(wanted),
        } => plan::cut::run(&wanted),
        Command::Plan {
            command: PlanCommand::Step(wanted),
        } => plan::step::run(&wanted, watch),
        Command::Verify {
            command: VerifyCommand::Chain { chain, plan, json },
        } => {
            check_inputs([&chain, &plan])?;
            verify::chain::run(&chain, &plan, json)
        }
        Command::Verify {
            command: VerifyCommand::Cut { graph, plan, json },
        } => {
            check_inputs([&graph, &plan])?;
            verify::cut::run(&graph, &plan, json)
        }
        Command::Verify {
            command: VerifyCommand::Step { log, plan, json },
        } => {
            check_inputs([&log, &plan])?;
            verify::step::run(&log, &plan, json)
        }
        Command::Policies => policies::run(),
        Command::Run { .. } | Command::Measure { .. } => Err(Failure::NeedsPython),
    }
}
