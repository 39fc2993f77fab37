package balance

import (
	"math"

	"dynmo/src/partition"
)

// Link is how a stage reaches the others during Diffuse.
type Link interface {
	// Exchange sends out to a neighbouring stage, which calls Exchange with
	// this one, and returns what that one sends. Lengths may differ.
	Exchange(stage int, out []float64) (in []float64, err error)
	// Max overwrites every value with its largest over all stages. Collective.
	Max(values []float64) error
}

// Diffuse balances by messages between neighbours: Diffusion, with every stage
// in a process of its own. Each calls it with what it knows (Problem.Stage)
// and gets the new cuts of all stages, the same on every one, and the record.
// Collective. Numbers of bytes must stay below 2^53. Errors are the link's, and
// Diffusion's.
//
// Loads of phase 1 and layers' numbers of phase 2 go between neighbours only.
// Reductions of a few numbers for each stage tell all when to stop; layers
// themselves do not move here.
func Diffuse(me Stage, link Link, o DiffusionOptions) (partition.Partition, Descent, error) {
	g := &party{me: me, link: link}
	return g.diffuse(o.withDefaults(me.Stages))
}

// party is one stage's part in Diffuse.
type party struct {
	me   Stage
	link Link
}

func (g *party) diffuse(o DiffusionOptions) (partition.Partition, Descent, error) {
	var d Descent
	home := g.me
	first, err := g.gather(float64(home.First), float64(home.First+len(home.Layers)))
	if err != nil {
		return nil, d, err
	}
	present := make(partition.Partition, home.Stages+1)
	for s := range home.Stages {
		present[s], present[s+1] = int(first[0][s]), int(first[1][s])
	}
	best, _, err := g.standing(false)
	if err != nil {
		return nil, d, err
	}
	cuts := present

	prefix, targets, err := g.diffuseLoads(o, &d)
	if err != nil {
		return nil, d, err
	}
	rounded := roundedCuts(home.Stages)
	home.resolve(prefix, targets, rounded)
	for r := range rounded {
		if err := g.link.Max(rounded[r]); err != nil {
			return nil, d, err
		}
	}
	d.Kept = true
	for _, start := range starts(present, rounded) {
		g.me = home
		if err := g.shift(present, start.cuts); err != nil {
			return nil, d, err
		}
		end, err := g.descend(&d, start.name)
		if err != nil {
			return nil, d, err
		}
		if !improves(end, best) {
			continue
		}
		at, err := g.gather(float64(g.me.First))
		if err != nil {
			return nil, d, err
		}
		best, d.Kept = end, false
		cuts = make(partition.Partition, home.Stages+1)
		for s, layer := range at[0] {
			cuts[s] = int(layer)
		}
		cuts[home.Stages] = present.Layers()
	}
	if best.excess > 0 {
		return nil, d, tooFull(best)
	}
	return cuts, d, nil
}

// gather tells all stages some numbers of this one: list[i][s] is the i-th
// number of stage s. Collective.
func (g *party) gather(own ...float64) (list [][]float64, err error) {
	n := g.me.Stages
	all := make([]float64, len(own)*n)
	for i := range all {
		all[i] = math.Inf(-1)
	}
	for i, x := range own {
		all[i*n+g.me.Index] = x
		list = append(list, all[i*n:(i+1)*n])
	}
	return list, g.link.Max(all)
}

// standing returns the standing of all stages, and whether any has changed.
// Collective.
func (g *party) standing(changed bool) (all standing, anyone bool, err error) {
	own, flag := g.me.own(), 0.0
	if changed {
		flag = 1
	}
	list, err := g.gather(own.worst, float64(own.excess), flag)
	if err != nil {
		return all, false, err
	}
	for s := range g.me.Stages {
		all = all.with(list[0][s], int64(list[1][s]))
		anyone = anyone || list[2][s] > 0
	}
	return all, anyone, nil
}

// neighbours exchanges messages with both neighbours, as far as they exist.
// Even stages turn to the right first, odd ones to the left, so nobody waits
// in a circle.
func (g *party) neighbours(toLeft, toRight []float64) (fromLeft, fromRight []float64, err error) {
	for turn := range 2 {
		switch right := (g.me.Index+turn)%2 == 0; {
		case right && g.me.Index < g.me.Stages-1:
			fromRight, err = g.link.Exchange(g.me.Index+1, toRight)
		case !right && g.me.Index > 0:
			fromLeft, err = g.link.Exchange(g.me.Index-1, toLeft)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return fromLeft, fromRight, nil
}

// diffuseLoads is phase 1 on this stage; see Descent.diffuseLoads.
func (g *party) diffuseLoads(o DiffusionOptions, d *Descent) (prefix, targets []float64, err error) {
	work := g.me.work()
	load := g.me.load(work)
	known, err := g.gather(work, g.me.Slow)
	if err != nil {
		return nil, nil, err
	}
	prefix, slow := prefixes(known[0]), known[1]
	total, flow, inflow := 0.0, 0.0, 0.0 // flows go to the right
	for ; ; d.Rounds++ {
		if o.looks(d.Rounds) {
			loads, err := g.gather(load)
			if err != nil {
				return nil, nil, err
			}
			phi := potential(loads[0], slow)
			d.Potential = append(d.Potential, phi)
			if o.done(phi, loads[0], d.Rounds) {
				break
			}
		}
		left, right, err := g.neighbours([]float64{load}, []float64{load})
		if err != nil {
			return nil, nil, err
		}
		if len(left) > 0 {
			inflow = float64(share(slow[g.me.Index-1], g.me.Slow) * (left[0] - load))
		}
		if len(right) > 0 {
			flow = float64(share(g.me.Slow, slow[g.me.Index+1]) * (load - right[0]))
			total += flow
		}
		work += inflow - flow
		load = g.me.load(work)
	}
	known, err = g.gather(prefix[g.me.Index+1] - total)
	return prefix, known[0][:g.me.Stages-1], err
}

// descend is phase 2 on this stage; see Descent.descend.
func (g *party) descend(d *Descent, start string) (standing, error) {
	r := Recut{Start: start}
	now, _, err := g.standing(false)
	if err != nil {
		return now, err
	}
	r.record(now)
	for idle := 0; idle < turn(g.me.Stages); {
		changed, err := g.recut(r.Rounds())
		if err != nil {
			return now, err
		}
		if now, changed, err = g.standing(changed); err != nil {
			return now, err
		}
		idle = idleRounds(idle, changed)
		r.record(now)
	}
	d.Recuts = append(d.Recuts, r)
	return now, nil
}
