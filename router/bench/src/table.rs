//! The figures of a run, for a terminal.

use std::fmt;

use crate::report::{Percentiles, Report};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}), {}, {}", self.url, self.api, self.workload, self.arrivals)?;
        writeln!(
            f,
            "{} answers in {:.2} s, {} of them short, {} failed: {:.1} tokens/s, {:.2} requests/s, {:.1} tokens a read",
            self.whole,
            self.seconds,
            self.short,
            self.failed,
            self.output_tokens_per_s,
            self.requests_per_s,
            self.tokens_per_read
        )?;
        if let Some(goodput) = &self.goodput {
            writeln!(
                f,
                "{:.1} % good ({}): {:.1} tokens/s, {:.2} requests/s",
                goodput.share * 100.0,
                goodput.limits,
                goodput.output_tokens_per_s,
                goodput.requests_per_s
            )?;
        }
        writeln!(f, "\n{:18} {:>10} {:>10} {:>10} {:>10} {:>10}", "ms", "mean", "p50", "p90", "p99", "max")?;
        let rows = [
            ("first token", Some(&self.ttft_ms)),
            ("between tokens", Some(&self.itl_ms)),
            ("per token", Some(&self.tpot_ms)),
            ("whole answer", Some(&self.e2e_ms)),
            ("sent late by", self.late_ms.as_ref()),
        ];
        for (name, Percentiles { mean, p50, p90, p99, max }) in
            rows.into_iter().filter_map(|(name, row)| Some((name, row?)))
        {
            writeln!(f, "{name:18} {mean:>10.3} {p50:>10.3} {p90:>10.3} {p99:>10.3} {max:>10.3}")?;
        }
        writeln!(f, "\n{:18} {:>10} {:>10} {:>10} {:>14}", "CPU", "user s", "system s", "cores", "µs a token")?;
        let processes = [
            ("server", self.server_cpu),
            ("from start to end", self.server_life_cpu),
            ("this client", Some(self.client_cpu)),
        ];
        for (name, cpu) in processes.into_iter().filter_map(|(name, cpu)| Some((name, cpu?))) {
            let (user, system) = (cpu.user_s, cpu.system_s);
            writeln!(f, "{name:18} {user:>10.2} {system:>10.2} {:>10.2} {:>14.2}", cpu.cores, cpu.us_per_token)?;
        }
        self.failures.iter().try_for_each(|(cause, count)| writeln!(f, "{count} x {cause}"))
    }
}
