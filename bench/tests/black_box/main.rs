//! The program `ringbench` as a user meets it: command lines, servers, files, exit statuses.

mod ci;
mod desk;
mod ending;
mod run;
mod stand_in;
