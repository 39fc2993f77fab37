package verdict

import (
	"slices"
	"time"

	"dynmo/src/record"
)

// Packer collects the results of packing while a run goes on, in bounded memory. Its input is that
// of an Observer, in the same order, including resumptions.
type Packer struct {
	start     start
	segments  []Segment // the last one is the present segment; empty before the first step
	packings  int
	predicted record.Float // from the last packing, for the next segment
	earlier   spare        // sums over the starts before the present one

	seconds, ranks float64 // seconds of steps; and these times the ranks that trained
	free           float64 // seconds of steps times the ranks that did not train
	dense, present paces   // paces of steps before the first change of the model or its ranks, and of the present segment
	batches        [2]int  // sequences of the steps of dense and of present
	changed        bool    // whether the model or its ranks have changed
	clock          string
	time           time.Time    // at the end of the last step
	wall           record.Float // real seconds since training began, at the end of the last step
}

// start is the data of one start of the run: its first step, and the fate of its nodes.
type start struct {
	ranks, nodes int // in its first step; 0: there was no step
	restarts     bool
	away         float64 // seconds times nodes without a rank that trains
	given        []gift
	failed       int
}

// gift is a number of nodes that were returned to Slurm at a time.
type gift struct {
	nodes int
	at    time.Time
}

// spare is sums over nodes that were not needed, with their hours.
type spare struct {
	releases, failed, nodes int
	given, idle             float64
}

// ended returns the sums of a start that ended at a time.
func (s start) ended(at time.Time) spare {
	sum := spare{releases: len(s.given), failed: s.failed}
	for _, g := range s.given {
		sum.nodes += g.nodes
		sum.given += float64(g.nodes) * max(0, at.Sub(g.at).Hours())
	}
	sum.idle = max(0, s.away/time.Hour.Seconds()-sum.given)
	return sum
}

func (a spare) plus(b spare) spare {
	return spare{a.releases + b.releases, a.failed + b.failed, a.nodes + b.nodes, a.given + b.given, a.idle + b.idle}
}

// Step takes a step. Steps of older versions, which lack the number of ranks, are ignored.
func (p *Packer) Step(m record.Metrics) {
	if m.Ranks == 0 {
		return
	}
	if p.start.ranks == 0 {
		p.start.ranks, p.start.nodes = m.Ranks, m.Nodes
	}
	if n := len(p.segments); n == 0 || p.segments[n-1].Ranks != m.Ranks {
		p.end()
		p.changed = p.changed || n > 0
		p.segments = append(p.segments, Segment{Step: m.Step, Ranks: m.Ranks, Nodes: m.Nodes, Predicted: p.predicted})
		p.present, p.predicted = paces{}, 0
	}
	seconds := float64(m.StepSeconds) * float64(m.Next()-m.Step)
	p.seconds += seconds
	p.ranks += seconds * float64(m.Ranks)
	p.free += seconds * float64(max(0, p.start.ranks-m.Ranks))
	p.start.away += float64(m.WallSeconds-p.wall) * float64(max(0, p.start.nodes-m.Nodes))
	p.present.add(m)
	p.batches[1] = m.BatchSize
	if !p.changed {
		p.dense.add(m)
		p.batches[0] = m.BatchSize
	}
	p.clock, p.time, p.wall = m.Clock, m.Time, m.WallSeconds
}

// end completes the present segment.
func (p *Packer) end() {
	if len(p.segments) == 0 {
		return
	}
	s := &p.segments[len(p.segments)-1]
	s.Steps, s.Seconds = p.present.steps, record.Float(p.present.late())
	if p.dense.steps > 0 {
		s.Throughput = record.Float(p.dense.late() / p.present.late() * float64(p.batches[1]) / float64(p.batches[0]))
	}
}

// Event takes an event. An event whose detail cannot be read is ignored.
func (p *Packer) Event(e record.Event) {
	switch e.Kind {
	case record.Dynamic:
		p.changed = true
	case record.Repack:
		var d record.Packed
		if e.Read(&d) != nil {
			return
		}
		p.packings, p.predicted = p.packings+1, d.Throughput
		if n := len(p.segments); n > 0 && p.segments[n-1].Step > e.Step { // the event is written after its steps were measured
			p.segments[n-1].Predicted = d.Throughput
		}
	case record.Release:
		var d record.Released
		if e.Read(&d) != nil {
			return
		}
		if d.GivenBack() > 0 {
			p.start.given = append(p.start.given, gift{d.GivenBack(), d.Time})
		}
		if d.Refused != "" {
			p.start.failed++
		}
		p.start.restarts = d.Mode == "restart" && d.Refused == ""
	case record.Resumed:
		if p.start.restarts { // restarted in the same job
			p.start.restarts = false
			return
		}
		p.earlier, p.start = p.earlier.plus(p.start.ended(p.time)), start{}
	}
}

// Packing returns the result of packing; nil if nothing was packed.
func (p *Packer) Packing() *Packing {
	if p.packings == 0 || len(p.segments) == 0 {
		return nil
	}
	p.end()
	first, last := p.segments[0], p.segments[len(p.segments)-1]
	now := p.start.ended(p.time)
	all := p.earlier.plus(now)
	least := last.Throughput
	for _, s := range p.segments[1:] {
		least = min(least, s.Throughput)
	}
	return &Packing{
		Clock: p.clock, RanksFirst: first.Ranks, RanksLast: last.Ranks, MeanRanks: record.Float(p.ranks / p.seconds), FreeRankSeconds: record.Float(p.free),
		NodesFirst: first.Nodes, NodesLast: last.Nodes, NodesGivenBack: all.nodes, HoursGivenBack: record.Float(all.given),
		NodesIdle: max(0, p.start.nodes-last.Nodes-now.nodes), HoursIdle: record.Float(all.idle),
		Packings: p.packings, Releases: all.releases, Failed: all.failed,
		Throughput: last.Throughput, ThroughputLeast: least, Predicted: last.Predicted, Segments: slices.Clone(p.segments),
	}
}
