package freeze

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/files"
	"dynmo/src/model"
)

const (
	// watched is how many layers are evaluated at a time, the front-most that train: as
	// soon as one freezes the next has a history, and may freeze without waiting for a
	// window of its own. An evaluation is a forward of the layer for one microbatch.
	watched = 4
	// samples is how many sequences are compared with each other, at least: Egeria's
	// mini-batches. They are of as many microbatches as that takes.
	samples = 8
	// plasticityUnit is what counts of plasticity are in: the largest, 4, stays below 2^53.
	plasticityUnit = 1e-15
	// freezeState is the section of a layer's state with its freezing.
	freezeState = "freeze"
	// mostThawed is how often a window is halved at most: it is 2 then, whatever it was.
	mostThawed = 10
)

// Names of the counts of an evaluation.
const (
	plasticityCount = "plasticity"           // in plasticityUnit
	referenceCount  = model.WatchNanoseconds // that the second model's forwards and the comparisons took
)

// plasticity freezes layers from the front once they have stopped changing (Egeria, Wang
// et al. 2022). At times the weights of all layers are copied in int8: a second model, the
// reference, which is given the same texts (see model.Watch). The plasticity of a layer is the
// similarity-preserving loss between the states that leave it in both models: how far it and all
// layers before it have come since the reference. The front-most layer that trains freezes, with
// all before it, when the moving average of its plasticity has not fallen for a window of
// evaluations. The last block and the head never do. When the learning rate has fallen by a
// factor since a layer froze, all thaw, and the window of those that were frozen is halved.
//
// Decisions depend on counts, which every rank has, and on the state of layers, which
// moves with them: they are the same wherever layers lie. Replica 0 evaluates its first
// microbatches. Layers whose forward cannot be done again freeze with the next that can; behind
// them the reference goes on from the model's own states.
//
// Departs: the reference runs where its layers lie, between two forwards of a stage, not on
// CPUs beside the GPUs; activations of frozen layers are not cached. The tolerance is a share of
// the average; the threshold of Wang et al. was not at hand.
type plasticity struct {
	options

	microbatches int // of a replica's step

	known      bool
	layers     []freezing // by layer of the chain
	candidates []int      // layers that are evaluated, ascending
	target     dynamic.Target
	anew       bool // references are wanted after this step, whatever their time
	seen       map[int]*compared
}

// compared is what is known of a layer in a step: rows of sequences, by microbatch.
type compared struct {
	live, reference [][][]float32
	microbatches    int
}

// freezing is what is known of a layer.
type freezing struct {
	History []float64 `json:"history"`          // plasticity, the newest last
	LR      float64   `json:"lr,omitempty"`     // when it froze; 0: it trains
	Thawed  int       `json:"thawed,omitempty"` // how often it has: each time halves its window
}

// Before freezes or thaws layers, and lets the front-most be watched in a step in which
// they are evaluated.
func (p *plasticity) Before(step int, t dynamic.Target) (dynamic.Change, error) {
	p.target = t
	if !p.known {
		if err := p.recall(t); err != nil {
			return dynamic.Change{}, fmt.Errorf("freeze: %w", err)
		}
	}
	change := p.decide(t.LR)
	if change.Structure {
		if err := t.Settle(); err != nil {
			return dynamic.Change{}, fmt.Errorf("freeze: %w", err)
		}
		t.Stage.Freeze(func(layer int) bool { return p.layers[layer].LR > 0 })
		if err := p.keep(); err != nil {
			return dynamic.Change{}, fmt.Errorf("freeze: %w", err)
		}
	}
	if since := step - p.Start; since > 0 && since%p.Every == 0 && !p.anew {
		if front := p.front(); len(front) > 0 {
			p.seen = make(map[int]*compared)
			enough := (samples + t.Exec.B - 1) / t.Exec.B
			t.Stage.Watch = &model.Watch{Layers: front, Microbatches: max(1, min(enough, p.microbatches)), Compare: p.compare}
		}
	}
	return change, nil
}

// front returns the layers that are evaluated next.
func (p *plasticity) front() []int {
	var list []int
	for _, id := range p.candidates {
		if p.layers[id].LR == 0 && len(list) < watched {
			list = append(list, id)
		}
	}
	return list
}

// recall takes over the state of all layers, that a run that is resumed begins with.
// Collective over the stages.
func (p *plasticity) recall(t dynamic.Target) error {
	chain := t.Stage.Config.Chain()
	p.layers, p.candidates = make([]freezing, len(chain)), nil
	mine, last := make(map[int]string), 0
	for _, d := range chain {
		last = max(last, d.Block)
	}
	for id, d := range chain {
		if d.Block >= 0 && d.Block < last && d.Repeats() {
			p.candidates = append(p.candidates, id)
		}
	}
	for _, l := range t.Stage.Layers {
		if s, ok := l.State(freezeState); ok {
			mine[l.ID] = string(s.Text)
		}
	}
	text, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	rows, err := t.Stages.Allgather(text)
	if err != nil {
		return err
	}
	for _, row := range rows {
		var texts map[int]string
		if err := json.Unmarshal(row, &texts); err != nil {
			return err
		}
		for id, text := range texts {
			if p.layers[id], err = readFreezing([]byte(text)); err != nil {
				return fmt.Errorf("layer %d (%s): state: %w", id, chain[id].Name, err)
			}
		}
	}
	p.known = true
	return nil
}

// readFreezing reads a layer's section.
func readFreezing(text []byte) (f freezing, err error) {
	if err = json.Unmarshal(text, &f); err == nil {
		err = files.CheckKeys(text, f)
	}
	if err != nil {
		return f, err
	}
	for i, x := range f.History {
		if !(x >= 0 && x <= 4) {
			return f, fmt.Errorf("history[%d]: %v, want a number from 0 to 4", i, x)
		}
	}
	if f.Thawed < 0 || f.Thawed > mostThawed {
		return f, fmt.Errorf("thawed: %d, want a number from 0 to %d", f.Thawed, mostThawed)
	}
	if !(f.LR >= 0 && f.LR <= math.MaxFloat64) {
		return f, fmt.Errorf("lr: %v, want a number >= 0", f.LR)
	}
	return f, nil
}

// keep makes what is known of this stage's layers part of their state.
func (p *plasticity) keep() error {
	for _, l := range p.target.Stage.Layers {
		f := p.layers[l.ID]
		if _, ok := l.State(freezeState); !ok && f.LR == 0 && f.Thawed == 0 && len(f.History) == 0 {
			continue
		}
		text, err := json.Marshal(f)
		if err != nil {
			return err
		}
		l.SetState(freezeState, text)
	}
	return nil
}

// decide freezes the front-most layers that have stopped changing, or thaws all. It returns the
// change.
func (p *plasticity) decide(lr float64) dynamic.Change {
	before := p.frozen()
	for _, f := range p.layers {
		if p.Thaw > 0 && f.LR >= p.Thaw*lr && f.LR > 0 {
			for i, f := range p.layers {
				if p.layers[i] = (freezing{Thawed: f.Thawed}); f.LR > 0 {
					p.layers[i].Thawed = min(f.Thawed+1, mostThawed)
				}
			}
			p.anew = true
			return dynamic.Change{Kind: "thaw", Structure: true, Detail: map[string]float64{"layers": float64(before)}}
		}
	}
	for _, id := range p.front() {
		if !p.stopped(p.layers[id].History, p.windowOf(p.layers[id])) {
			break
		}
		for i := range p.layers[:id+1] {
			if p.layers[i].LR == 0 {
				p.layers[i] = freezing{LR: lr, Thawed: p.layers[i].Thawed}
			}
		}
	}
	if now := p.frozen(); now > before {
		return dynamic.Change{Kind: "freeze", Structure: true, Detail: map[string]float64{"layers": float64(now), "of_all": float64(len(p.layers))}}
	}
	return dynamic.Change{}
}

// frozen returns how many layers are.
func (p *plasticity) frozen() (n int) {
	for _, f := range p.layers {
		if f.LR > 0 {
			n++
		}
	}
	return n
}

// windowOf returns how many averages in a row must not fall.
func (p *plasticity) windowOf(f freezing) int { return max(2, p.Window>>f.Thawed) }

// stopped reports whether a layer's plasticity has stopped falling. A line is fitted to the
// averages of the window (least squares). The plasticity has stopped if the line's fall from one
// evaluation to the next is at most the tolerance's share of their mean.
func (p *plasticity) stopped(history []float64, window int) bool {
	average := p.Averaged()
	if len(history) < average+window-1 {
		return false
	}
	history = history[len(history)-(average+window-1):]
	middle, slope, spread, mean := float64(window-1)/2, 0.0, 0.0, 0.0
	for i := range window {
		sum := 0.0
		for _, x := range history[i : i+average] {
			sum += x
		}
		at := float64(i) - middle
		slope, spread, mean = slope+at*sum/float64(average), spread+at*at, mean+sum/float64(average*window)
	}
	return slope/spread >= -p.Tolerance*mean
}

// After notes what was seen, and renews the references when it is time to: those of frozen
// layers too, which feed the others.
func (p *plasticity) After(step int, counts []cost.CountSum) error {
	seen, _ := evaluated(counts)
	for layer, x := range seen {
		f := &p.layers[layer]
		f.History = append(f.History, x)
		f.History = f.History[max(0, len(f.History)-(p.Averaged()+p.Window-1)):]
	}
	since := step - p.Start
	due := p.anew && since >= 0 || since >= 0 && since%p.Reference == 0
	stage := p.target.Stage
	p.anew, stage.Watch, p.seen = false, nil, nil
	if due {
		if err := p.target.Settle(); err != nil {
			return fmt.Errorf("freeze: %w", err)
		}
	}
	for _, l := range stage.Layers {
		if due && l.Referred() {
			if err := l.Refer(p.target.Exec); err != nil {
				return fmt.Errorf("freeze: reference of layer %d (%s): %w", l.ID, l.Name, err)
			}
		}
	}
	if len(seen) == 0 {
		return nil
	}
	return p.keep()
}

// evaluated returns the plasticity of the layers that were evaluated in a step, by their
// numbers, and the seconds that it took; nil and 0 if none was.
func evaluated(counts []cost.CountSum) (plasticities map[int]float64, seconds float64) {
	for _, c := range counts {
		switch {
		case len(c.Values) != 1:
		case c.Name == plasticityCount:
			if plasticities == nil {
				plasticities = make(map[int]float64)
			}
			plasticities[c.Layer] = float64(c.Values[0]) * plasticityUnit
		case c.Name == referenceCount:
			seconds += float64(c.Values[0]) * 1e-9
		}
	}
	return plasticities, seconds
}

// compare notes the states of a layer for a microbatch, and returns its plasticity once it knows
// all microbatches. States that are not finite tell nothing.
func (p *plasticity) compare(layer, microbatch int, live, reference [][]float32) []cost.Count {
	of, n := p.seen[layer], p.target.Stage.Watch.Microbatches
	if of == nil {
		of = &compared{live: make([][][]float32, n), reference: make([][][]float32, n)}
		p.seen[layer] = of
	}
	of.live[microbatch], of.reference[microbatch] = live, reference
	if of.microbatches++; of.microbatches < n {
		return nil
	}
	loss := dissimilarity(slices.Concat(of.live...), slices.Concat(of.reference...))
	delete(p.seen, layer)
	if math.IsNaN(loss) {
		return nil
	}
	return []cost.Count{{Name: plasticityCount, Values: []int64{int64(math.Round(loss / plasticityUnit))}}}
}
