package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/files"
	"dynmo/src/lab/report"
	"dynmo/src/lab/roofline"
	"dynmo/src/lab/verdict"
	"dynmo/src/launch"
	"dynmo/src/nodebench"
	"dynmo/src/plan/search"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// watcher records a run and shows its progress. It runs on rank 0.
type watcher struct {
	out      io.Writer
	settings config.Config
	resolved []string // the reasons for the values of settings that were "auto"
	records  runDirectory

	run      *record.Run // nil if no records are kept
	dir      string      // of run; "" if there was none
	past     record.Past // of a resumed run
	first    int         // first step to run
	tally    verdict.Tally
	model    report.Model // at present
	progress *record.Progress
	left     *record.TimeLeft
	began    time.Time
	took     time.Duration // of the whole run
	crowded  string        // host with more ranks than cores; "": none
	host     *nodebench.Watch
	farewell bool // the last line was printed
	failed   bool // the run ended with an error
	steps    int  // steps done
	skipped  int
	onGPU    bool
	peak     verdict.Peak // of a rank
	err      error        // of closing and summing up
}

// begin opens the run directory. It prints what will run, and on which hosts.
func (w *watcher) begin(about launch.World) (record.Observer, error) {
	p := record.Here(about.MPI)
	p.Revision, p.Kernels, p.Corpus = revision(), about.Kernels, about.Corpus.Hash
	if about.MPI {
		p.Hosts = about.HostOf
	}
	var err error
	if w.run, w.past, err = w.records.open(w.settings, p, about, &w.tally); err != nil {
		return nil, usageError{err}
	}
	w.skipped = w.past.Skipped
	w.first, w.steps = about.Resumed.Step, about.Resumed.Step
	w.began, w.left, w.model = time.Now(), record.NewTimeLeft(), report.NewModel(w.settings)
	if w.onGPU = about.GPU != ""; !w.onGPU {
		w.peak = verdict.Peak{Of: verdict.Sgemm, FLOPs: about.Sgemm}
	} else if about.Clock == "wall" {
		w.peak = verdict.Peak{Of: verdict.DataSheet, FLOPs: roofline.Peak(about.GPUModel, search.Precision(w.settings))}
	}
	w.crowded, w.host = about.Crowded, nodebench.NewWatch()
	for _, e := range w.past.Changes {
		w.model.Event(e)
	}
	w.progress = record.NewProgress(os.Stderr, w.settings.Train.LogEvery)
	tokens, err := findTokenizer(w.settings, about.Resumed.From != "")
	if err != nil {
		return nil, fmt.Errorf("the run's tokenizer: %w", err)
	}
	if w.run != nil {
		w.dir, w.run.Warn = w.run.Dir(), w.progress.Say
		if err := leaveFiles(filepath.Join(w.dir, record.TokenizerDir), tokens.files, data.IsTokenizerFile); err != nil {
			return nil, fmt.Errorf("the run's tokenizer: %w", err)
		}
		if about.Resumed.From == "" {
			if err := keepSource(w.dir, w.settings); err != nil {
				return nil, err
			}
		}
		w.progress.Say("run directory " + w.dir)
	}
	for _, line := range w.records.resumed(w.dir, w.settings.Train.Steps, about.Resumed, w.past) {
		w.progress.Say(line)
	}
	w.progress.Say(tokens.corpusLine(about.Corpus, w.settings.Model.Vocab))
	if tokens.unused {
		w.progress.Say("note: " + tokens.unusedNote(w.settings))
	}
	for _, line := range w.settings.Ignored() {
		w.progress.Say("note: " + line)
	}
	for _, why := range w.resolved {
		w.progress.Say("note: " + why)
	}
	l := w.settings.Parallel
	w.progress.Say(fmt.Sprintf("%s: %s on %s (%s x %s), kernels %s, balance %s, clock=%s",
		files.Visible(w.settings.Run.Name), record.Counted(about.Ranks, "rank"), record.Counted(about.Hosts, "host"), record.Counted(l.Stages, "stage"), record.Counted(l.Replicas, "replica"), about.Kernels,
		w.settings.Balance, about.Clock))
	if about.MPI || about.GPU != "" {
		for _, line := range about.Placement {
			w.progress.Say("ranks " + line)
		}
	}
	for _, line := range about.Notes {
		w.progress.Say("note: " + line)
	}
	if about.GPU != "" {
		w.progress.Say("note: rank 0 computes on GPU " + about.GPU)
	}
	if about.Transport != "" {
		w.progress.Say(fmt.Sprintf("note: %s carries the memory of GPUs between ranks", about.Transport))
	}
	if t := about.Tuned; t.Products > 0 {
		w.progress.Say(fmt.Sprintf("note: algorithms of %d kinds of products were measured in %.1f s", t.Products, t.Time.Seconds()))
	}
	if about.Unmetered != nil {
		w.progress.Say(fmt.Sprintf("note: energy is not metered: %v", about.Unmetered))
	}
	if about.Clock == "virtual" && w.settings.Run.Clock == "auto" {
		w.progress.Say("note: there are more ranks than cores, so step times are what enough free cores would take (clock=virtual): you wait longer")
	}
	return w, nil
}

// Last returns the last step before the run was resumed; nil if the run is new.
func (w *watcher) Last() *record.Metrics { return w.past.Last }

// Step records a step and shows its progress.
func (w *watcher) Step(m record.Metrics) error {
	if m.Skipped {
		w.skipped++
	}
	w.tally.Step(m)
	w.steps = record.Iteration(m.Step)
	w.progress.Step(record.Log{
		Iteration: w.steps, Iterations: w.settings.Train.Steps,
		ConsumedSamples: int64(w.steps) * int64(m.BatchSize), Seconds: float64(m.StepSeconds),
		FLOPs: m.ModelFLOPs(w.settings), GPU: w.onGPU, Peak: w.peak.FLOPs, LR: float64(m.LR), BatchSize: m.BatchSize, Loss: float64(m.Loss), Replayed: m.Replayed, GradNorm: float64(m.GradNorm),
		Skipped: w.skipped, NaN: w.skipped,
		TokensPerSecond: float64(m.TokensPerSecond), Clock: m.Clock, Left: w.left.Step(w.settings.Train.Steps - w.steps),
		Model: w.model.Words(m),
	})
	return w.run.Step(m)
}

// Say prints a line.
func (w *watcher) Say(line string) { w.progress.Say(line) }

// Event records an event.
func (w *watcher) Event(e record.Event) error {
	w.tally.Event(e)
	w.model.Event(e)
	return w.run.Event(e)
}

// Costs records the costs of a phase.
func (w *watcher) Costs(s record.Phase) error {
	w.tally.Costs(s)
	return w.run.Costs(s)
}

// Trace records a timeline of the first replica. It stops when the run, with its earlier starts,
// has as many timelines as the settings allow.
func (w *watcher) Trace(s trace.Step) error {
	if w.run == nil || w.run.Timelines() >= w.settings.Run.TraceSteps {
		return nil
	}
	return w.run.Trace(s)
}

// close ends the records and the progress bar, once. It returns the first error of recording. The
// run directory stays reserved for this run until leave.
func (w *watcher) close() error {
	if w.progress == nil {
		return w.err
	}
	if w.run != nil {
		w.err = w.run.CloseFiles()
	}
	w.progress.Close()
	w.took = time.Since(w.began)
	w.progress = nil
	return w.err
}
