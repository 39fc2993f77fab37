package trainerlogs

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Megatron-LM's lines, as d98e8a64 prints them (core/timers.py, training/training.py and
// training/arguments.py). Launchers put text before them.
var (
	iterationLine = regexp.MustCompile(`\biteration +(\d+)/ *\d+ \|`)
	rankLine      = regexp.MustCompile(`\brank +(\d+): (\d+\.\d\d|nan|-?inf|-\d+\.\d\d)$`)
	timerLine     = regexp.MustCompile(`(?:^|\s)([a-z][a-z/-]*[a-z]):$`)
	argumentLine  = regexp.MustCompile(`(?:^|\s)([a-z_]+) \.+ (\S+)$`)
	stagesLine    = regexp.MustCompile(`using world size: (\d+),.*\bpipeline-model-parallel size: (\d+)`)
)

const (
	forwardTimer  = "forward-compute"
	backwardTimer = "backward-compute"
	timersHeader  = "times across ranks (ms):"
	wantTimers    = "want --timing-log-level 2 --timing-log-option all"
	blocksSkipped = 2
)

// megatronBlock is the times of one iteration, or the means over an interval.
type megatronBlock struct {
	iteration int
	times     map[string][]float64 // by timer and rank: milliseconds; those of other timers are not kept
}

// ofTraining reports whether the times are those of steps. Other blocks are of the start or of checkpoints.
func (b megatronBlock) ofTraining() bool {
	for _, timer := range []string{"forward-backward", forwardTimer, backwardTimer} {
		if _, has := b.times[timer]; has {
			return true
		}
	}
	return false
}

// megatronLog reads a log of Megatron-LM line by line.
type megatronLog struct {
	shape
	blocks    int // that have begun
	iteration int // of the last line with one
	interval  int
	ranks     int
	world     int // as the log says; 0: it does not
	now       *megatronBlock
	timer     string
	parts     []part
}

// readMegatron reads the standard output of Megatron-LM.
func readMegatron(path string, s shape) (measured, error) {
	if s.microbatches == 0 {
		return measured{}, errors.New("the times are sums over the microbatches of a step, want --microbatches")
	}
	m := megatronLog{shape: s}
	for stage := range s.Stages {
		p := part{name: fmt.Sprintf("stage %d", stage)}
		for chunk := range s.Chunks {
			p.layers = p.layers.plus(s.virtual[s.Place(stage, chunk)])
		}
		m.parts = append(m.parts, p)
	}
	if err := eachLine(path, m.read); err != nil {
		return measured{}, err
	}
	if err := m.end(true); err != nil {
		return measured{}, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case m.blocks == 0:
		return measured{}, fmt.Errorf("%s: no line %q, %s", path, timersHeader, wantTimers)
	case m.blocks <= blocksSkipped:
		return measured{}, fmt.Errorf("%s: times of %d intervals, want at least %d: the first two hold the start", path, m.blocks, blocksSkipped+1)
	}
	return measured{parts: m.parts, notes: []string{
		fmt.Sprintf("the first two of %d blocks of times are left out: the first is of one iteration but divided by the interval, and the second has that iteration in it", m.blocks),
		"Megatron-LM has one time for the backward: half of it counts as for inputs, half as for weights",
	}}, nil
}

// read takes the next line.
func (m *megatronLog) read(_ int, text string) error {
	switch {
	case strings.Contains(text, "iteration "):
		if found := iterationLine.FindStringSubmatch(text); found != nil {
			return m.next(found[1])
		}
	case strings.HasSuffix(text, timersHeader):
		if err := m.end(false); err != nil {
			return err
		}
		m.now, m.timer = &megatronBlock{iteration: m.iteration, times: make(map[string][]float64)}, ""
	case strings.HasSuffix(text, "time across ranks (ms):"):
		return fmt.Errorf("%q names no rank, %s", text[strings.LastIndex(text, "time across"):], wantTimers)
	case m.now != nil && strings.HasSuffix(text, ":"):
		if found := timerLine.FindStringSubmatch(text); found != nil {
			m.timer = found[1]
			m.now.times[m.timer] = nil
		}
	case m.now != nil && strings.Contains(text, "rank "):
		if found := rankLine.FindStringSubmatch(text); found != nil && (m.timer == forwardTimer || m.timer == backwardTimer) {
			return m.time(found[1], found[2])
		}
	case strings.Contains(text, "using world size: "):
		if found := stagesLine.FindStringSubmatch(text); found != nil {
			return m.begin(found[1], found[2])
		}
	case m.blocks == 0 && strings.Contains(text, " .."):
		if found := argumentLine.FindStringSubmatch(text); found != nil {
			return m.argument(found[1], found[2])
		}
	}
	return nil
}

// time takes the milliseconds of a rank.
func (m *megatronLog) time(rank, milliseconds string) error {
	r, err := strconv.Atoi(rank)
	if list := m.now.times[m.timer]; err != nil || r != len(list) {
		return fmt.Errorf("%s of rank %s behind that of rank %d, want one time for every rank", m.timer, rank, len(list)-1)
	}
	x, err := strconv.ParseFloat(milliseconds, 64)
	if err != nil || !(x >= 0 && x <= mostMilliseconds) {
		return fmt.Errorf("%s of rank %s is %.40s, want milliseconds from 0 to %g", m.timer, rank, milliseconds, mostMilliseconds)
	}
	m.now.times[m.timer] = append(m.now.times[m.timer], x)
	return nil
}

// next takes the number of an iteration.
func (m *megatronLog) next(number string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	if err := m.end(false); err != nil {
		return err
	}
	step := n - m.iteration
	switch {
	case m.blocks > 0 && (step <= 0 || m.interval > 0 && step != m.interval):
		return fmt.Errorf("iteration %d behind %d: two runs in one file, want the lines of one", n, m.iteration)
	case m.blocks >= blocksSkipped:
		m.interval = step
	}
	m.iteration = n
	return nil
}

// begin takes the numbers of ranks and stages that a run prints at its start.
func (m *megatronLog) begin(world, stages string) error {
	if m.world > 0 {
		return errors.New("a second start: two runs in one file, want the lines of one")
	}
	m.world, _ = strconv.Atoi(world)
	if p, _ := strconv.Atoi(stages); p != m.Stages {
		return fmt.Errorf("the run has %d pipeline stages, and --layout or --stages %d", p, m.Stages)
	}
	return nil
}

// argument takes an argument of the run.
func (m *megatronLog) argument(name, value string) error {
	all := m.total()
	for k, argument := range [kinds]string{block: "num_layers", block + 1: "mtp_num_layers"} {
		if n, err := strconv.Atoi(value); name == argument && err == nil && n != all[k] {
			return fmt.Errorf("%s is %d, and --layout has %d %c", name, n, all[k], letters[k])
		}
	}
	if name == "use_tp_pp_dp_mapping" && value == "True" {
		return errors.New("--use-tp-pp-dp-mapping: the ranks of a stage are not neighbours, want a log without this option")
	}
	return nil
}

// end takes the times of the block that is open, if there is one. last says that the file ends with it.
func (m *megatronLog) end(last bool) error {
	b := m.now
	m.now = nil
	if b == nil || !b.ofTraining() {
		return nil
	}
	m.blocks++
	f, g := b.times[forwardTimer], b.times[backwardTimer]
	if m.ranks == 0 {
		m.ranks = max(m.world, len(f))
	}
	cut := len(f) != m.ranks || len(g) != m.ranks
	switch {
	case cut && last && m.blocks > 1:
		return fmt.Errorf("the times of iteration %d are cut off by the end of the file, want the lines before them", b.iteration)
	case len(f) == 0:
		return fmt.Errorf("no forward-compute for iteration %d, %s", b.iteration, wantTimers)
	case len(g) == 0:
		return fmt.Errorf("no backward-compute for iteration %d: Megatron-LM leaves it out with --overlap-moe-expert-parallel-comm, want a log without this option", b.iteration)
	case cut:
		return fmt.Errorf("%d forward and %d backward times for iteration %d, want one for each of %d ranks: ranks are missing", len(f), len(g), b.iteration, m.ranks)
	case m.ranks%m.Stages != 0:
		return fmt.Errorf("%d ranks, want a multiple of the %d stages: ranks are missing, or --stages is another", m.ranks, m.Stages)
	}
	if m.blocks <= blocksSkipped {
		return nil
	}
	each := m.ranks / m.Stages // pipeline stages are the slowest dimension of Megatron-LM's ranks
	for stage := range m.parts {
		samples := &m.parts[stage].samples
		for pass, list := range [][]float64{forward: f, backward: g} {
			sum := 0.0
			for _, x := range list[stage*each : (stage+1)*each] {
				sum += x / 1000
			}
			samples[pass] = append(samples[pass], sum/float64(each*m.microbatches))
		}
	}
	return nil
}
