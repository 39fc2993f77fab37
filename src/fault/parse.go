package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const form = "KIND@STEP:RANK, kill@STEP.PHASE:RANK or slow@STEP-STEP:RANKxFACTOR"

// mostFactor is the largest factor of a slow rank.
const mostFactor = 1000

// Parse parses a fault in the format of form, for a run of `ranks` ranks. It returns nil for "".
func Parse(text string, ranks int) (*Fault, error) {
	if text == "" {
		return nil, nil
	}
	kind, rest, _ := strings.Cut(text, "@")
	place, rank, _ := strings.Cut(rest, ":")
	f := &Fault{Kind: Kind(kind)}
	fail := func(format string, args ...any) (*Fault, error) {
		return nil, fmt.Errorf("%s=%s: %s", Variable, text, fmt.Sprintf(format, args...))
	}
	if !slices.Contains(kinds, f.Kind) && rest != "" {
		return fail("kind %q, want one of %v", kind, kinds)
	}
	var wrong [4]error
	if f.Kind == Slow {
		var last, factor string
		place, last, _ = strings.Cut(place, "-")
		rank, factor, _ = strings.Cut(rank, "x")
		f.Last, wrong[2] = strconv.Atoi(last)
		f.Factor, wrong[3] = strconv.ParseFloat(factor, 64)
	}
	step, phase, phased := strings.Cut(place, ".")
	f.Phase = Phase(phase)
	f.Step, wrong[0] = strconv.Atoi(step)
	f.Rank, wrong[1] = strconv.Atoi(rank)
	switch {
	case wrong != [4]error{} || f.Step < 0 || f.Rank < 0:
		return fail("want %s", form)
	case phased && !slices.Contains(all(), f.Phase):
		return fail("phase %q, want one of %v", phase, all())
	case f.Rank >= ranks:
		return fail("rank %d, the run has %d", f.Rank, ranks)
	case phased && f.Kind != Kill && f.Kind != stop:
		return fail("in a phase want kill or stop")
	case f.Kind == Slow && (f.Last < f.Step || !(f.Factor >= 1 && f.Factor <= mostFactor)):
		return fail("steps %d to %d, %v times longer: want ascending steps and 1 to %d times", f.Step, f.Last, f.Factor, mostFactor)
	}
	return f, nil
}

// String formats the fault for Parse.
func (f *Fault) String() string {
	place := strconv.Itoa(f.Step)
	switch {
	case f.Kind == Slow:
		return fmt.Sprintf("%s@%d-%d:%dx%v", f.Kind, f.Step, f.Last, f.Rank, f.Factor)
	case f.Phase != "":
		place += "." + string(f.Phase)
	}
	return fmt.Sprintf("%s@%s:%d", f.Kind, place, f.Rank)
}
