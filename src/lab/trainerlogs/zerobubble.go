package trainerlogs

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A line of zero-bubble (39f2c186, zerobubble/runtime.py) before it plans its schedule, and the two lines
// behind it, for example for two stages of two chunks in microseconds:
//
//	rank 0 Performing ILP with: f=((9000, 9100), (9050, 9020)),
//	 b=((9800, 9700), (9750, 9760)),
//	 w=((8900, 8800), (8850, 8860)),
var (
	planLine = regexp.MustCompile(`Performing ILP with: f=(.*?),?$`)
	passLine = regexp.MustCompile(`(?:^|\s)([bw])=([\[(].*?),?$`)
	inner    = regexp.MustCompile(`[\[(]([0-9., ]+)[\])]`)
)

// readZeroBubble reads the log of zero-bubble-pipeline-parallelism.
func readZeroBubble(path string, s shape) (measured, error) {
	var plans [][passes][][]float64 // by plan: by pass, rank and chunk: microseconds
	open := false
	err := eachLine(path, func(_ int, text string) error {
		if found := planLine.FindStringSubmatch(text); found != nil {
			if open {
				return errors.New("the plan before this one has no w: the log is cut, want its lines in one piece")
			}
			plans, open = append(plans, [passes][][]float64{forward: numbersOf(found[1])}), true
		} else if found := passLine.FindStringSubmatch(text); found != nil && open {
			plans[len(plans)-1][map[string]int{"b": backward, "w": weight}[found[1]]] = numbersOf(found[2])
			open = found[1] != "w"
		}
		return nil
	})
	if err != nil {
		return measured{}, err
	}
	plans = slices.DeleteFunc(plans, isPlaceholder)
	switch {
	case open:
		return measured{}, fmt.Errorf("%s: the log is cut inside a plan, want one that has its w=…", path)
	case len(plans) == 0:
		return measured{}, fmt.Errorf("%s: no line %q with measured times, want a log that goes on behind --zero-bubble-pipeline-timers-end-iter", path, "Performing ILP with: f=…")
	case len(plans) > 1:
		return measured{}, fmt.Errorf("%s: %d plans with measured times: several runs in one file, want the lines of one", path, len(plans))
	}
	s.Vee = s.order == "v" || s.order == "" && s.Chunks == 2 // its schedules with two chunks are V-shaped, except the interleaved one
	m, err := zeroBubbleParts(plans[0], s)
	if err != nil {
		return m, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// numbersOf reads lists of numbers inside a list.
func numbersOf(text string) (rows [][]float64) {
	for _, found := range inner.FindAllStringSubmatch(text, -1) {
		var row []float64
		for field := range strings.SplitSeq(found[1], ",") {
			if field = strings.TrimSpace(field); field != "" {
				x, err := strconv.ParseFloat(field, 64)
				if err != nil {
					return nil
				}
				row = append(row, x)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// isPlaceholder reports whether a plan was made before anything was measured: all times are 1000.
func isPlaceholder(plan [passes][][]float64) bool {
	for _, rows := range plan {
		for _, row := range rows {
			if slices.ContainsFunc(row, func(x float64) bool { return x != 1000 }) {
				return false
			}
		}
	}
	return true
}

// zeroBubbleParts returns the parts of the model. Several ranks of one stage and chunk are samples.
func zeroBubbleParts(plan [passes][][]float64, s shape) (measured, error) {
	ranks := len(plan[forward])
	if ranks == 0 || ranks%s.Stages != 0 || len(plan[backward]) != ranks || len(plan[weight]) != ranks {
		return measured{}, fmt.Errorf("times of %d, %d and %d ranks in f, b and w, want a multiple of the %d stages in each: ranks are missing, or --stages is another",
			ranks, len(plan[backward]), len(plan[weight]), s.Stages)
	}
	m := measured{parts: make([]part, s.Virtual())}
	for rank := range ranks {
		stage := rank / (ranks / s.Stages)
		f, b, w := plan[forward][rank], plan[backward][rank], plan[weight][rank]
		if len(f) != s.Chunks || len(b) != s.Chunks || len(w) != s.Chunks {
			return m, fmt.Errorf("rank %d has times of %d chunks, want %d: --chunks, or --layout with another number of virtual stages", rank, len(f), s.Chunks)
		}
		for chunk := range f {
			p := &m.parts[s.Place(stage, chunk)]
			p.name, p.layers = fmt.Sprintf("stage %d, chunk %d", stage, chunk), s.virtual[s.Place(stage, chunk)]
			p.samples[forward] = append(p.samples[forward], f[chunk]/1e6)
			p.samples[backward] = append(p.samples[backward], (b[chunk]+w[chunk])/1e6)
			p.samples[weight] = append(p.samples[weight], w[chunk]/1e6)
		}
		if slices.Equal(b, w) {
			return m, fmt.Errorf("rank %d has equal b and w: zero-bubble writes that where it measured no backward for weights, want a schedule that divides the backward", rank)
		}
	}
	return m, nil
}
