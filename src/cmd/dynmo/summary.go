package main

import (
	"cmp"
	"fmt"
	"time"

	"dynmo/src/comm/mpi"
	"dynmo/src/lab/report"
	"dynmo/src/lab/verdict"
	"dynmo/src/nodebench"
	"dynmo/src/record"
	"dynmo/src/train"
)

// sumUp writes the summary of a run that has ended, beside the measurements. It first writes the
// summary without the value of moving layers: that value may take seconds, which a launcher may not
// allow. For a run that did not fail it then adds the value. The last line names the place of the
// records.
func (w *watcher) sumUp(out train.Outcome, failed error) {
	defer w.leave()
	status := verdict.Finished
	switch {
	case exitStatus(failed) == exitDiverged:
		status = verdict.Diverged
	case failed != nil:
		status = verdict.Failed
	case out.Stopped:
		status = verdict.Stopped
	}
	s := w.tally.Summary(status, w.settings, failed)
	s.Hash, w.failed = out.Hash, failed != nil
	if w.peak.FLOPs > 0 {
		s.Peak = &w.peak
	}
	w.keep(s)
	if failed != nil {
		return
	}
	if s.Skipped > 0 {
		fmt.Fprintf(w.out, "%d of %s had no update, since the loss or the gradient was not finite: lower optimizer.lr\n", s.Skipped, record.Counted(s.Steps, "step"))
	}
	w.tellPacking(s.Packing)
	if s.Worth = w.tally.Worth(w.settings); s.Worth != nil {
		w.tellWorth(s)
	}
	if s.After.Steps > 0 {
		fmt.Fprintf(w.out, "measured step, median: %s\n", measuredSteps(s))
	}
}

// tellWorth adds the value of moving layers to the summary, and prints it.
func (w *watcher) tellWorth(s verdict.Summary) {
	s.Worth.Doubt = w.doubt(s.After.Clock)
	w.keep(s)
	if s.WouldGain = w.wouldGain(s); s.WouldGain != "" {
		w.keep(s)
	}
	fmt.Fprintf(w.out, "simulated from the measured layer costs: %s\n", report.Headline(*s.Worth, s.Packing != nil, w.tally.Overhead()))
	for _, line := range report.Remarks(s) {
		fmt.Fprintln(w.out, line)
	}
}

// leastWatched is the shortest run whose use of the host is judged, because the system counts CPU
// time in ticks of 10 ms.
const leastWatched = time.Second

// doubt returns why the run's times on a clock are unreliable: on the wall clock, ranks waited for
// cores. It returns "" if there is no doubt.
func (w *watcher) doubt(clock string) string {
	if clock != "wall" {
		return ""
	}
	if w.crowded != "" {
		return w.crowded + ", and clock=wall counts waits for a core. Use run.clock = virtual, or as many cores as ranks"
	}
	threads := w.settings.Device.Threads
	if !mpi.Launched() {
		threads *= w.settings.Parallel.Stages * w.settings.Parallel.Replicas
	}
	if w.took < leastWatched {
		return ""
	}
	if others, cores := w.host.Others(); nodebench.Busy(others, cores, threads) {
		return fmt.Sprintf("other processes and ranks took %.1f of the %d cores of rank 0's host, and clock=wall counts waits for a core. Use run.clock = virtual, or a host at rest",
			others, cores)
	}
	return ""
}

// tellPacking prints the effect of packing onto fewer ranks, if packing was on.
func (w *watcher) tellPacking(p *verdict.Packing) {
	switch {
	case p != nil:
		fmt.Fprintln(w.out, report.PackedSentence(*p))
	case w.settings.Packs():
		fmt.Fprintln(w.out, report.Unpacked)
	}
}

// keep writes the summary into the run directory, if there is one. Without room for it the run's end
// stays the same.
func (w *watcher) keep(s verdict.Summary) {
	if w.dir == "" {
		return
	}
	if err := s.Write(w.dir); err != nil {
		fmt.Fprintf(w.out, "warning: %v\n", err)
	}
}

// leave prints once where the records lie, and releases the run directory. It names the steps of a part of
// a run as events and errors do, from 0.
func (w *watcher) leave() {
	if w.run == nil || w.farewell {
		return
	}
	w.farewell = true
	took := record.Duration(w.took.Seconds())
	if (w.failed || w.first > 0) && w.steps > w.first {
		fmt.Fprintf(w.out, "run directory %s: steps %d to %d in %s\n", w.dir, w.first, w.steps-1, took)
	} else {
		fmt.Fprintf(w.out, "run directory %s: %d steps in %s\n", w.dir, w.steps, took)
	}
	w.err = cmp.Or(w.err, w.run.Close())
}

// measuredSteps describes the times of steps.
func measuredSteps(s verdict.Summary) string {
	ms := func(p verdict.Pace) string { return fmt.Sprintf("%.1f ms", 1e3*float64(p.Seconds)) }
	if s.Before.Steps == s.Steps {
		return fmt.Sprintf("%s (clock=%s)", ms(s.After), s.After.Clock)
	}
	return fmt.Sprintf("%s before anything moved or changed, %s at the end (clock=%s)", ms(s.Before), ms(s.After), s.After.Clock)
}
