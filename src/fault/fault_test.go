package fault

import (
	"os"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Fault{
		"kill@0:0":         {Kind: Kill},
		"segv@12:3":        {Kind: Segv, Step: 12, Rank: 3},
		"exit@1:2":         {Kind: Exit, Step: 1, Rank: 2},
		"panic@1:2":        {Kind: Panic, Step: 1, Rank: 2},
		"abort@1:2":        {Kind: Abort, Step: 1, Rank: 2},
		"kill@20.rename:2": {Kind: Kill, Step: 20, Phase: Rename, Rank: 2},
	} {
		if got, err := Parse(text, 4); err != nil || *got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if f, err := Parse("", 4); f != nil || err != nil {
		t.Errorf("no text: %+v, %v", f, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"kill":             "DYNMO_FAULT=kill: want KIND@STEP:RANK or kill@STEP.PHASE:RANK",
		"kill@3":           "DYNMO_FAULT=kill@3: want KIND@STEP:RANK or kill@STEP.PHASE:RANK",
		"kill@-3:0":        "DYNMO_FAULT=kill@-3:0: want KIND@STEP:RANK or kill@STEP.PHASE:RANK",
		"kill@3:-1":        "DYNMO_FAULT=kill@3:-1: want KIND@STEP:RANK or kill@STEP.PHASE:RANK",
		"kill@3:1:2":       "DYNMO_FAULT=kill@3:1:2: want KIND@STEP:RANK or kill@STEP.PHASE:RANK",
		"hang@3:1":         `DYNMO_FAULT=hang@3:1: kind "hang", want one of [kill segv exit panic abort]`,
		"kill@3.close:1":   `DYNMO_FAULT=kill@3.close:1: phase "close", want one of [open write sync manifest rename renamed latest prune]`,
		"kill@3.:1":        `DYNMO_FAULT=kill@3.:1: phase "", want one of [open write sync manifest rename renamed latest prune]`,
		"kill@3:4":         "DYNMO_FAULT=kill@3:4: rank 4, the run has 4",
		"panic@3.rename:1": "DYNMO_FAULT=panic@3.rename:1: in a phase of a checkpoint want kill",
	} {
		if f, err := Parse(text, 4); err == nil || err.Error() != want {
			t.Errorf("%s: %+v, %v, want %s", text, f, err, want)
		}
	}
}

// TestIn: a fault is in one step of one rank, or in one phase; none is nowhere.
func TestIn(t *testing.T) {
	step, phase := &Fault{Kind: Kill, Step: 5, Rank: 1}, &Fault{Kind: Kill, Step: 5, Phase: Rename, Rank: 1}
	var none *Fault
	if !step.In(5, 1) || step.In(4, 1) || step.In(5, 0) || phase.In(5, 1) || none.In(5, 1) {
		t.Error("in the wrong step, or for the wrong rank")
	}
	pid := func(int) int { return 0 } // of another host
	file := &Fault{Kind: Kill, Step: 5, Phase: Sync, Rank: 1}
	for _, c := range []struct {
		f          *Fault
		step, rank int
		want       bool
	}{
		{none, 5, 1, false}, {step, 5, 1, false}, {file, 5, 1, true}, {file, 4, 1, false}, {file, 5, 0, false}, {phase, 5, 0, true}, {phase, 5, 2, false},
	} {
		at := c.f.Killer(c.step, c.rank, pid)
		if (at != nil) != c.want {
			t.Errorf("%+v, step %d, rank %d: killer %v, want %v", c.f, c.step, c.rank, at != nil, c.want)
		}
		if at != nil {
			at(c.f.Phase) // kills nothing on another host
		}
	}
}

// TestStrike: what can be tried within this process.
func TestStrike(t *testing.T) {
	var aborted, exited int
	abort, exit := func(s int) { aborted = s }, func(s int) { exited = s }
	(&Fault{Kind: Abort}).Strike(abort, exit)
	(&Fault{Kind: Exit}).Strike(abort, exit)
	if aborted != 1 || exited != 3 {
		t.Errorf("aborted with %d, ended with %d", aborted, exited)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	(&Fault{Kind: Panic}).Strike(abort, os.Exit)
}
