package moe

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/kind/moe/place"
	"dynmo/src/piece"
	"dynmo/src/random"
)

// placing decides which replicas hold which experts, from the rows that experts had (see
// place).
type placing struct {
	experts, replicas, room int
	block                   int   // rows of a block (see place.Dealer)
	weights, sums, moments  int64 // bytes of an expert: weights, sums of gradients that a copy sends, all that an owner has
	rule

	layers    []int // of the chain, that have experts
	forecasts []*place.Forecast
	draws     [][]float64      // by block and expert, normal (see draw)
	futile    [2][]search      // by whether owners may move, and block: the last search without a better map
	steps     int              // so far
	present   piece.Assignment // the last one that was checked
	even      piece.Map
	placer    place.Placer
	dealer    place.Dealer
	rows      []int
	drawn     []float64 // see draw
	all, left int64     // assignments so far, and those that were dropped
}

// rule is how experts are placed.
type rule int

const (
	placeCopies rule = iota // copies, and owners where that pays
	placeOwners             // owners alone
	placeEPLB               // as DeepSeek does
	placeEven               // nothing moves
	placeCapped             // nothing moves; assignments beyond a capacity are dropped
	placePadded             // nothing moves; every expert takes as long as the fullest
)

// rules are the rules that settings name.
var rules = map[string]rule{"copies": placeCopies, "owners": placeOwners, "eplb": placeEPLB, "even": placeEven}

// newPlacing returns the placing of experts on replicas with spare places.
func newPlacing(w rule, experts, replicas, spare, block int) *placing {
	p := &placing{experts: experts, replicas: replicas, room: place.Places(experts, replicas, spare), block: block, rule: w}
	p.placer = place.Placer{Replicas: replicas, Room: p.room}
	if w == placeOwners {
		p.placer.Room = place.Places(experts, replicas, 0)
	}
	p.even = piece.Even(experts, replicas)
	return p
}

// placed returns what places experts in runs of the settings; nil: nothing does.
func placed(c config.Config) dynamic.Placing {
	m := config.Of[options](c)
	if !spread(c) || m.Spare == 0 || rules[m.Placing] == placeEven {
		return nil
	}
	p := newPlacing(rules[m.Placing], m.Experts, c.Parallel.Replicas, m.Spare, m.BlockRows)
	p.setBytes(c)
	return p
}

// setBytes sets the bytes of an expert of the settings.
func (p *placing) setBytes(c config.Config) {
	parameters := 3 * int64(c.Model.Hidden) * int64(c.Inside())
	element, wide := int64(4), int64(0)
	if c.Device.Precision != "f32" {
		element, wide = 2, 4
	}
	p.weights, p.sums, p.moments = parameters*element, parameters*fixedBytes, parameters*(element+wide+8)
}

// fixedBytes is the size of a number of a sum of gradients in fixed point.
const fixedBytes = 8

// Observe takes the rows of the experts of all layers.
func (p *placing) Observe(counts []cost.CountSum) {
	p.steps++
	for _, c := range counts {
		if c.Name != assigned.Name {
			continue
		}
		i, found := slices.BinarySearch(p.layers, c.Layer)
		if !found {
			p.layers, p.forecasts = slices.Insert(p.layers, i, c.Layer), slices.Insert(p.forecasts, i, new(place.Forecast))
			draw, draws := random.Keyed(drawn, uint64(c.Layer)), make([]float64, p.experts)
			for e := range draws {
				draws[e] = draw.NormFloat64()
			}
			p.draws = slices.Insert(p.draws, i, draws)
			for k := range p.futile {
				p.futile[k] = slices.Insert(p.futile[k], i, search{})
			}
		}
		p.forecasts[i].Observe(assigned.Read(c.Values).Rest())
	}
}

const (
	// near is how far above the bound the fullest replica may be before other copies are looked
	// for; gained is the least share of its work that a proposal takes from it.
	near, gained = 1.03, 0.01
	// useless is how much more work the fullest replica may have without any copies, which cost
	// messages in every step.
	useless = 1.005
	// again is how much further above the bound than when no better map was found the fullest
	// replica must be for another search; after rest steps there is one anyway.
	again, rest = 1.02, 8
)

// search is when no better map was found, and how far above the bound the fullest replica was.
type search struct {
	over float64
	step int
}

// last returns the last search for a block that found no better map.
func (p *placing) last(q dynamic.Question, block int) *search {
	if q.Owners {
		return &p.futile[1][block]
	}
	return &p.futile[0][block]
}

// mostWork bounds the layers that are placed again after a step, by experts times replicas.
// Deciding then takes under 2 % of steps of 80 ms (see BenchmarkDeciding). Layers that lie furthest
// above the bound come first, the others after later steps.
const mostWork = 1 << 16

// candidate is a block whose fullest replica may become emptier.
type candidate struct {
	block         int
	before, bound float64 // rows of the fullest replica, as drawn
}

// Propose returns other maps for the layers where they make the fullest replica emptier, or as
// full without copies.
func (p *placing) Propose(q dynamic.Question) (list []dynamic.Proposal) {
	p.check(q.Present)
	var worst []candidate
	for i := range p.layers {
		if len(p.forecasts[i].Rows) != p.experts || p.draw(i) == 0 {
			continue
		}
		c := candidate{block: i, bound: p.placer.Bound(p.drawn)}
		enough := near * c.bound
		if last := p.last(q, i); p.steps < last.step+rest {
			enough = max(enough, last.over*again*c.bound)
		}
		if c.before = p.fullest(p.of(i), enough); c.before > enough {
			worst = append(worst, c)
		}
	}
	slices.SortStableFunc(worst, func(a, b candidate) int { return cmp.Compare(b.before/b.bound, a.before/a.bound) })
	worst = worst[:min(len(worst), max(1, mostWork/(p.experts*p.replicas)))]
	slices.SortFunc(worst, func(a, b candidate) int { return cmp.Compare(a.block, b.block) })
	for _, c := range worst {
		if x, ok := p.propose(q, c); ok {
			list = append(list, x)
		}
	}
	return list
}

// propose returns another map for a block, if there is a better one.
func (p *placing) propose(q dynamic.Question, c candidate) (x dynamic.Proposal, ok bool) {
	layer, now, mean := p.layers[c.block], p.of(c.block), p.draw(c.block)
	p.nodes(q, layer)
	next := p.next(now, p.forecasts[c.block].Rows, q.Owners)
	after := p.fullest(next, 0)
	if bare := now.Owned(); now.Copies() > 0 && p.fullest(bare, 0) <= c.before*useless {
		next, after = bare, p.fullest(bare, 0)
	} else if after > c.before*(1-gained) || next.Equal(now) {
		*p.last(q, c.block) = search{c.before / c.bound, p.steps}
		return x, false
	}
	return dynamic.Proposal{Layer: layer, Pieces: next, Now: c.before / mean, Then: after / mean, Bound: c.bound / mean, Moved: p.moved(now, next)}, true
}

// nodes tells the placer on which nodes the replicas of a layer are.
func (p *placing) nodes(q dynamic.Question, layer int) {
	p.placer.Node = p.placer.Node[:0]
	for r := range p.replicas {
		if q.Node != nil {
			p.placer.Node = append(p.placer.Node, q.Node(layer, r))
		}
	}
	if len(p.placer.Node) == 0 {
		p.placer.Node = nil
	}
}

// draw sets what maps of a block are judged by: rows that could be those of the next step, as far
// as they varied. All maps of a block are judged by the same draw. It returns their mean
// over the replicas.
func (p *placing) draw(block int) (mean float64) {
	f, draws := p.forecasts[block], p.draws[block]
	p.drawn = p.drawn[:0]
	for e, x := range f.Rows {
		p.drawn = append(p.drawn, x*max(0, 1+f.Spread[e]*draws[e]))
		mean += p.drawn[e] / float64(p.replicas)
	}
	return mean
}

// drawn sets these draws apart from the other random numbers.
const drawn = 0x64726177

// next returns the map that the rule prefers after the present one.
func (p *placing) next(now piece.Map, loads []float64, owners bool) piece.Map {
	switch {
	case p.rule == placeEPLB:
		return p.placer.EPLB(loads)
	case owners && p.rule <= placeOwners:
		return p.placer.Place(loads, now)
	case p.rule == placeCopies:
		return p.placer.Copy(now, loads)
	}
	return now
}

// check makes the assignment the present one. Maps that do not fit the experts are an error of the
// programmer: a layout is checked when it is read.
func (p *placing) check(present piece.Assignment) {
	if present.Equal(p.present) {
		return
	}
	for block := range present.Blocks() {
		if present.Block(block).Check(p.experts, p.replicas, p.experts) != nil {
			panic("moe: a layout has pieces that are no map of experts")
		}
	}
	p.present = present
}

// of returns the present map of a block.
func (p *placing) of(block int) piece.Map {
	if m := p.present.Block(block); m != nil {
		return m
	}
	return p.even
}

// Take returns the assignment with the maps of proposals; the initial one where all experts lie
// evenly.
func (p *placing) Take(present piece.Assignment, list []dynamic.Proposal) piece.Assignment {
	if len(list) == 0 {
		return present
	}
	p.check(present)
	maps := slices.Repeat([]piece.Map{p.even}, len(p.layers))
	for block := range present.Blocks() {
		maps[block] = present.Block(block)
	}
	for _, x := range list {
		block, _ := slices.BinarySearch(p.layers, x.Layer)
		maps[block] = x.Pieces
	}
	if !slices.ContainsFunc(maps, func(m piece.Map) bool { return !m.Equal(p.even) }) {
		return piece.Assignment{}
	}
	return piece.New(maps)
}

// Copied returns by layer the bytes that its busiest replica sends or receives in a step because
// of copies: an owner sends weights to every copy, and every copy sends its sums of gradients
// to the owner.
func (p *placing) Copied(pieces piece.Assignment) map[int]int64 {
	p.check(pieces)
	all := make(map[int]int64)
	for i, layer := range p.layers {
		if m := p.of(i); m.Copies() > 0 {
			all[layer] = p.copied(m)
		}
	}
	return all
}

// copied returns what Copied does, of a map.
func (p *placing) copied(m piece.Map) (most int64) {
	sent, received := make([]int64, p.replicas), make([]int64, p.replicas)
	for _, on := range m {
		for _, r := range on[1:] {
			sent[on[0]], received[r] = sent[on[0]]+p.weights, received[r]+p.weights
			sent[r], received[on[0]] = sent[r]+p.sums, received[on[0]]+p.sums
		}
	}
	return max(slices.Max(sent), slices.Max(received))
}

// moved returns the bytes of the experts that change owner.
func (p *placing) moved(from, to piece.Map) (bytes int64) {
	for e, on := range to {
		if on[0] != from[e][0] {
			bytes += p.moments
		}
	}
	return bytes
}

// Load returns how many times its even share of the rows the fullest replica has.
func (p *placing) Load(pieces piece.Assignment, layer int, values []int64) float64 {
	list := assigned.Read(values).Rest()
	sum, most := int64(0), int64(0)
	for _, n := range list {
		sum, most = sum+n, max(most, n)
	}
	if sum == 0 {
		return 1
	}
	even := float64(sum) / float64(p.replicas)
	p.check(pieces)
	m := p.even
	if i, found := slices.BinarySearch(p.layers, layer); found {
		m = p.of(i)
	}
	p.rows = p.rows[:0]
	for _, n := range list {
		if p.rule == placeCapped {
			most := int64(math.Ceil(capacity * float64(sum) / float64(len(list))))
			p.all, p.left = p.all+n, p.left+max(0, n-most)
			n = min(n, most)
		}
		p.rows = append(p.rows, int(n))
	}
	switch p.rule {
	case placePadded:
		return float64(most) * float64(len(list)) / float64(sum)
	case placeEPLB:
		return slices.Max(place.Shared(m, p.rows, p.replicas)) / even
	}
	p.dealer.Deal(m, p.rows, p.block, p.replicas)
	return float64(slices.Max(p.dealer.Loads)) / even
}

// Dropped returns the share of the assignments that a capacity has dropped.
func (p *placing) Dropped() float64 { return float64(p.left) / float64(max(1, p.all)) }

// fullest returns the rows of the fullest replica in a map where those of draw come; any number
// from these to enough, where that is more.
func (p *placing) fullest(m piece.Map, enough float64) float64 {
	if p.rule != placeEPLB {
		return p.placer.Fullest(m, p.drawn, enough)
	}
	p.rows = p.rows[:0]
	for _, x := range p.drawn {
		p.rows = append(p.rows, int(x))
	}
	return slices.Max(place.Shared(m, p.rows, p.replicas))
}

// capacity is that of the rival which drops assignments: 1.25 as in Switch Transformers (Fedus
// et al. 2022, section 2.2).
const capacity = 1.25
