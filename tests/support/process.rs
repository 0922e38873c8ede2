//! Programs that a benchmark runs, and what they use.

use std::{
    fs,
    process::{Child, Command},
    time::Duration,
};

/// The kernel counts CPU time in these units.
const TICK: Duration = Duration::from_millis(10);

/// A program that is killed on drop.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// CPU time used so far, with that of its children.
    pub fn cpu(&self) -> Duration {
        let ticks: u32 = self.processes().into_iter().map(cpu_ticks).sum();
        TICK * ticks
    }

    /// Resident memory in megabytes, with that of its children.
    pub fn resident(&self) -> f64 {
        self.processes().into_iter().map(resident).sum()
    }

    fn processes(&self) -> Vec<u32> {
        let own = self.0.id();
        let tasks = fs::read_dir(format!("/proc/{own}/task")).unwrap().flatten();
        let lists = tasks.map(|it| fs::read_to_string(it.path().join("children")));
        let lists: Vec<_> = lists.map(Result::unwrap_or_default).collect();
        let children = lists.iter().flat_map(|it| it.split_whitespace());
        children.map(|it| it.parse().unwrap()).chain([own]).collect()
    }
}

fn cpu_ticks(process: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    // User and system time.
    after_name.split_whitespace().skip(11).take(2).map(|it| it.parse::<u32>().unwrap()).sum()
}

fn resident(process: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|it| it.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1000.0
}
