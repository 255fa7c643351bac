//! Runs rounds of one bench, to be counted from outside: `ringmicro NAME ROUNDS`, `ringmicro list`, `ringmicro setting`.
//!
//! What stands before the first round is the same for any number of rounds. So the difference between two runs is what
//! their rounds cost, to the instruction.

use std::hint::black_box;
use std::process::ExitCode;

use ringmicro::{Bench, benches, setting};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["list"] => benches().for_each(|bench| println!("{bench}")),
        ["setting"] => println!("{}", setting::json()),
        [name, rounds] => {
            let Some(bench) = benches().find(|bench| bench.name == *name) else {
                eprintln!("no bench is called {name:?}; `ringmicro list` names them");
                return ExitCode::FAILURE;
            };
            let Ok(rounds) = rounds.parse() else {
                eprintln!("{rounds:?} is no number of rounds");
                return ExitCode::FAILURE;
            };
            run(bench, rounds);
        }
        _ => {
            eprintln!("usage: ringmicro NAME ROUNDS | list | setting");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn run(bench: &Bench, rounds: u32) {
    let mut round = (bench.prepare)();
    for _ in 0..rounds {
        black_box(round());
    }
}
