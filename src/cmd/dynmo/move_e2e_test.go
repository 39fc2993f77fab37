package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/fault"
)

// moving are settings with which layers leave the last stage, because its head is large. All stages
// take part in the move after the second step. The run resumes after three steps.
var moving = sets("model.vocab=2048", "model.blocks=14", "checkpoint.every=3", "checkpoint.keep=10")

// copying are settings with which experts are copied after the first step, because untrained
// routers load replicas unevenly.
var copying = sets("model.family=llama", "model.intermediate=256", "parallel.stages=2", "parallel.replicas=2", "parallel.experts=spread",
	"dynamic.kind=moe", "moe.experts=4", "moe.top=1", "moe.block_rows=4", "moe.spare=1", "balance.kind=uniform", "checkpoint.every=3", "checkpoint.keep=10")

// beforeAMove returns a folder with a run, and the weights at the end of an undisturbed run. The
// run was killed after it wrote its checkpoint of three steps, before any move. still is the
// setting that prevents moves.
func beforeAMove(t *testing.T, settings []string, still string) (dir, want string) {
	t.Helper()
	dir = folder(t, "")
	want = finalWeights(t, alone.run(t, dir, training(append(settings, "--set", still, "--run-dir", "run")...)...))
	list, err := filepath.Glob(filepath.Join(dir, "run", "ckpt", "step_*"))
	expect.OK(t, err)
	for _, dir := range list {
		if filepath.Base(dir) != "step_00000003" {
			expect.OK(t, os.RemoveAll(dir))
		}
	}
	return dir, want
}

// TestTrainCrashesInAMove: a rank is killed in a phase of a move of layers, and the run ends at
// once. It resumes from the checkpoint before the move to the weights of an undisturbed run.
// DYNMO_LONG=1 kills every rank in every phase.
func TestTrainCrashesInAMove(t *testing.T) {
	t.Parallel()
	before := sync.OnceValues(func() (dir, want string) { return beforeAMove(t, moving, "balance.kind=uniform") })
	crashInMoves(t, before, "[45]", moving, func(phase int) fault.Fault { return fault.Fault{Step: 3 + phase%2, Phase: fault.Received, Rank: 1} })
}

// TestTrainCrashesWhileExpertsMove kills a rank while copies of experts travel, after the decision
// and before the next step. The run ends at once. It resumes from the checkpoint before, moves the
// experts, and ends with the weights of an undisturbed run. With DYNMO_LONG=1 every rank in every
// phase.
func TestTrainCrashesWhileExpertsMove(t *testing.T) {
	t.Parallel()
	before := sync.OnceValues(func() (dir, want string) { return beforeAMove(t, copying, "moe.placing=even") })
	crashInMoves(t, before, "[345]", copying, func(int) fault.Fault { return fault.Fault{Step: 3, Phase: fault.Send, Rank: 1} })
}

// TestTrainCrashesWhileLeaving kills ranks that lose all their layers, and ranks that stay.
func TestTrainCrashesWhileLeaving(t *testing.T) {
	if os.Getenv("DYNMO_LONG") != "1" {
		t.Skip("set DYNMO_LONG=1: it kills six runs")
	}
	t.Parallel()
	longer := append(moving, sets("train.steps=120", "checkpoint.keep=100")...) // longer than the time in which a lost rank is noticed
	before := sync.OnceValues(func() (dir, want string) { return beforeAMove(t, longer, "balance.kind=uniform") })
	packing := append(longer, sets("repack.kind=sustain", "repack.tolerance=0.9", "repack.stages=1")...)
	for rank := range 4 {
		crashOnLeaving(t, before, "migrate", packing, fault.Fault{Kind: fault.Kill, Step: 3, Phase: fault.Resized, Rank: rank})
	}
	for _, rank := range []int{2, 3} {
		crashOnLeaving(t, before, "parked", packing, fault.Fault{Kind: fault.Kill, Step: 3, Phase: fault.Parked, Rank: rank})
	}
}

// crashInMoves resumes runs that have not moved a layer yet. A rank is killed in a phase of a move,
// and the run is resumed again. None of its checkpoints is damaged. one returns the step of a phase,
// and the phase and the rank of the only case without DYNMO_LONG=1. steps matches the steps in which
// the error may be found.
func crashInMoves(t *testing.T, before func() (dir, want string), steps string, more []string, one func(phase int) fault.Fault) {
	for i, phase := range fault.MovePhases() {
		f := one(i)
		for rank := range 4 {
			if (phase != f.Phase || rank != f.Rank) && os.Getenv("DYNMO_LONG") != "1" {
				continue
			}
			room := "migrate"
			if phase == fault.Settle {
				room = `(migrate|pipeline|update|checkpoint)` // the error may be found in the next phases
			}
			kill := fault.Fault{Kind: fault.Kill, Step: f.Step, Phase: phase, Rank: rank}
			goesOn(t, before, crash{"F19", fmt.Sprintf("phase=%s rank=%d", phase, rank), 4, kill, killed, 3, `, pid \d+\) is gone, in step ` + steps + `: ` + room, more})
		}
	}
}

// crashOnLeaving is one case of crashInMoves for a packing, which comes some steps later:
// checkpoints may come before it.
func crashOnLeaving(t *testing.T, before func() (dir, want string), room string, more []string, f fault.Fault) {
	goesOn(t, before, crash{"F19", fmt.Sprintf("phase=%s rank=%d", f.Phase, f.Rank), 4, f, killed, 0, `, pid \d+\) is gone, in step \d+: ` + room, more})
}

// goesOn makes a run crash, and resumes it to the weights of an undisturbed run.
func goesOn(t *testing.T, before func() (dir, want string), c crash) {
	t.Run(c.where, func(t *testing.T) {
		four.need(t)
		dir, want := before()
		here := t.TempDir()
		expect.OK(t, os.CopyFS(here, os.DirFS(dir)))
		c.runIn(t, here, want)
		if e := alone.run(t, here, "ckpt", "verify", "run"); e.status != exitDone || strings.Contains(e.stdout, "damaged") {
			t.Errorf("checkpoints: %s%s", e.stdout, e.stderr)
		}
	})
}
