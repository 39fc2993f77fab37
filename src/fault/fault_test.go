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
		"kill@0.send:3":    {Kind: Kill, Phase: Send, Rank: 3},
		"stop@0.parked:3":  {Kind: stop, Phase: Parked, Rank: 3},
		"stop@4:1":         {Kind: stop, Step: 4, Rank: 1},
		"hang@4:1":         {Kind: hang, Step: 4, Rank: 1},
		"slow@10-59:2x4":   {Kind: Slow, Step: 10, Last: 59, Rank: 2, Factor: 4},
		"slow@0-0:0x1.5":   {Kind: Slow, Factor: 1.5},
	} {
		got, err := Parse(text, 4)
		if err != nil || *got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if f, err := Parse("", 4); f != nil || err != nil {
		t.Errorf("no text: %+v, %v", f, err)
	}
}

func TestParseRefuses(t *testing.T) {
	const phases = "[open write sync manifest rename renamed latest prune announce send received settle resized parked goodbye scontrol]"
	const want = "want KIND@STEP:RANK, kill@STEP.PHASE:RANK or slow@STEP-STEP:RANKxFACTOR"
	for text, want := range map[string]string{
		"kill":           want,
		"kill@3":         want,
		"kill@-3:0":      want,
		"kill@3:-1":      want,
		"kill@3:1:2":     want,
		"slow@3:1":       want,
		"slow@3-4:1":     want,
		"slow@3.open:1":  want,
		"flood@3:1":      `kind "flood", want one of [kill segv exit panic abort stop hang slow]`,
		"kill@3.close:1": `phase "close", want one of ` + phases,
		"kill@3.:1":      `phase "", want one of ` + phases,
		"kill@3:4":       "rank 4, the run has 4",
		"panic@3.send:1": "in a phase want kill or stop",
		"slow@4-3:1x2":   "steps 4 to 3, 2 times longer: want ascending steps and 1 to 1000 times",
		"slow@3-4:1x0.5": "steps 3 to 4, 0.5 times longer: want ascending steps and 1 to 1000 times",
		"slow@3-4:1xNaN": "steps 3 to 4, NaN times longer: want ascending steps and 1 to 1000 times",
	} {
		if f, err := Parse(text, 4); err == nil || err.Error() != "DYNMO_FAULT="+text+": "+want {
			t.Errorf("%s: %+v, %v, want %s", text, f, err, want)
		}
	}
}

// TestIn: a fault happens in one step of one rank, or in one phase. A nil fault never happens.
func TestIn(t *testing.T) {
	step, phase := &Fault{Kind: Kill, Step: 5, Rank: 1}, &Fault{Kind: Kill, Step: 5, Phase: Rename, Rank: 1}
	var none *Fault
	if !step.Hits(5, 1) || step.Hits(4, 1) || step.Hits(5, 0) || phase.Hits(5, 1) || none.Hits(5, 1) {
		t.Error("in the wrong step, or for the wrong rank")
	}
	pid := func(int) int { return 0 } // every rank is on another host
	file := &Fault{Kind: Kill, Step: 5, Phase: Sync, Rank: 1}
	move, release := &Fault{Kind: Kill, Step: 5, Phase: Send, Rank: 1}, &Fault{Kind: Kill, Step: 5, Phase: Scontrol, Rank: 1}
	for _, c := range []struct {
		f          *Fault
		step, rank int
		want       bool
	}{
		{none, 5, 1, false}, {step, 5, 1, false}, {file, 5, 1, true}, {file, 4, 1, false}, {file, 5, 0, false}, {phase, 5, 0, true}, {phase, 5, 2, false},
		{move, 4, 1, false}, {move, 5, 1, true}, {move, 9, 1, true}, {move, 9, 0, false}, {release, 9, 0, true}, {release, 9, 2, false},
	} {
		at := c.f.Killer(c.step, c.rank, pid)
		if (at != nil) != c.want {
			t.Errorf("%+v, step %d, rank %d: killer %v, want %v", c.f, c.step, c.rank, at != nil, c.want)
		}
		if at != nil {
			at(c.f.Phase) // must kill nothing on another host
		}
	}
}

// TestStrike tries the kinds of fault that do not end this process.
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
