//! The roles of actors. Each actor is a process, which is restarted when it ends.

pub(crate) mod consumer;
pub(crate) mod controller;
pub(crate) mod environment;
pub(crate) mod traced;
pub(crate) mod victim;

use usertrace_tests::random::Random;

use crate::actor::Actor;

/// A choice and its weight.
pub(crate) type Weighted<T> = (u64, T);

/// Chooses one by weight.
pub(crate) fn choose<T: Copy>(random: &mut Random, all: &[Weighted<T>]) -> (u64, T) {
    let sum = all.iter().map(|(weight, _)| weight).sum();
    let mut at = random.below(sum);
    for (index, (weight, what)) in all.iter().enumerate() {
        if at < *weight {
            return (index as u64, *what);
        }
        at -= weight;
    }
    (0, all[0].1)
}

/// The role of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// An unprivileged traced program that attacks the kernel and other programs.
    Traced,
    /// An unprivileged reader, of the group that may trace.
    Consumer,
    /// Root, who creates and changes traces.
    Controller,
    /// Memory pressure, hot-plug, kills, injected faults.
    Environment,
    /// A program that checks that its own memory does not change.
    Victim,
}

impl Role {
    /// The user and the group that it runs as.
    pub(crate) fn user(self, actor: usize) -> Option<(u32, u32)> {
        match self {
            // Two programs share a user, so that they can attack each other.
            Self::Traced => Some((20_000 + actor as u32 / 2, 20_000)),
            Self::Consumer => Some((30_000, crate::supervisor::GROUP)),
            Self::Victim => Some((40_000, 40_000)),
            Self::Controller | Self::Environment => None,
        }
    }

    /// Runs the process of an actor until its end.
    pub(crate) fn run(self, actor: &Actor) {
        match self {
            Self::Traced => traced::run(actor),
            Self::Consumer => consumer::run(actor),
            Self::Controller => controller::run(actor),
            Self::Environment => environment::run(actor),
            Self::Victim => victim::run(actor),
        }
    }
}
