package elastic

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dynmo/src/comm"
	"dynmo/src/fault"
)

const (
	// goodbyeFor is how long a rank may take to say goodbye once it is told to go.
	goodbyeFor = time.Minute
	// graceFor is how long ranks that have said goodbye may take to end: Slurm ends the
	// whole step if it has to kill one on a node that it takes back.
	graceFor = 1500 * time.Millisecond
)

// Release is how ranks left before the end of the run, and what became of their nodes.
type Release struct {
	Steps       int      // that were done when the last of the ranks lost its layers
	NodesBefore []string // of the job
	Nodes       []string // of the job after that
	Ranks       []int    // of the launched world, that left
	Silent      []int    // that were told to and have not said goodbye
	Seconds     float64  // from the last layer's move to the end of the release
	Checkpoint  float64  // seconds until the checkpoint was written
	Goodbye     float64  // seconds from the order to the last goodbye
	Scheduler   float64  // seconds until the batch system had taken the nodes back, or refused
	Tries       int      // calls of the batch system
	Refused     error    // why nodes were not taken back; nil if they were, or none was to be
	Time        time.Time
}

// outsider is a rank that holds no layer, as rank 0 knows it.
type outsider struct {
	steps int       // that were done when it lost its last one
	since time.Time // of that
	line  *line
	told  bool // to go or to end
	gone  bool // it has said goodbye
}

// Releases is rank 0's side of what becomes of ranks that hold no layer. It is polled
// between steps, and waits for none of them until the run ends.
type Releases struct {
	Terms     Terms
	Scheduler Scheduler                  // nil unless the mode is Slurm
	Retry     time.Duration              // how long a batch system that is busy is asked again
	Note      func(nodes []string) error // is given all nodes that were given back, and before others are, those too; nil: not wanted
	// Reached returns the function to call in every phase of a release that began after a
	// number of steps; nil: none.
	Reached func(steps int) func(fault.Phase)

	base     *comm.Group
	outside  map[int]*outsider // by rank of the launched world
	nodes    []string          // of the job
	released []string          // nodes that were given back
	now      *departure        // that is under way; nil: none
}

// NewReleases returns rank 0's side in a launched world.
func NewReleases(base *comm.Group, t Terms) *Releases {
	all := make([]int, base.Size())
	for rank := range all {
		all[rank] = rank
	}
	return &Releases{Terms: t, base: base, outside: make(map[int]*outsider), nodes: t.Kept(all)}
}

// Add takes in ranks that lost their last layer after a number of steps.
func (r *Releases) Add(steps int, ranks []int) error {
	for _, rank := range ranks {
		l, err := newLine(r.base, rank, comm.TagWord, comm.TagOrder)
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
		r.outside[rank] = &outsider{steps: steps, since: time.Now(), line: l}
	}
	return nil
}

// Asked is what ranks without layers were asked for.
type Asked struct{ Stop, Save bool }

// Poll goes on with what is under way, without waiting. saved is how many steps the last
// checkpoint holds: a rank goes once one has been written without it. It returns a release
// that has ended, nil if none has.
func (r *Releases) Poll(saved int) (*Release, Asked, error) {
	var asked Asked
	for rank, o := range r.outside {
		if err := o.listen(&asked); err != nil {
			return nil, asked, fmt.Errorf("release: rank %d: %w", rank, err)
		}
	}
	if r.now == nil && r.Terms.Ends() {
		if ranks := r.ready(saved); len(ranks) > 0 {
			if err := r.begin(ranks); err != nil {
				return nil, asked, fmt.Errorf("release: %w", err)
			}
		}
	}
	if r.now == nil || !r.now.advance(r) {
		return nil, asked, nil
	}
	ended := r.now.Release
	r.now = nil
	return &ended, asked, nil
}

// listen takes what a rank says.
func (o *outsider) listen(asked *Asked) error {
	for !o.gone {
		word, err := o.line.hear()
		switch {
		case err != nil:
			return err
		case word == 0:
			return nil
		case word == wordBye:
			o.gone = true
			return nil
		}
		asked.Stop = asked.Stop || word == wordStop
		asked.Save = asked.Save || word == wordSave
		if err := o.line.listen(); err != nil {
			return err
		}
	}
	return nil
}

// ready returns the ranks that can go, in order: those without layers since before the last
// checkpoint. Of a node all go or none, for Slurm takes back whole nodes.
func (r *Releases) ready(saved int) []int {
	can := func(rank int) bool {
		o := r.outside[rank]
		return o != nil && (o.told || o.steps <= saved)
	}
	held := make(map[string]bool)
	for rank, node := range r.Terms.Nodes {
		held[node] = held[node] || !can(rank)
	}
	var list []int
	for rank, node := range r.Terms.Nodes {
		if can(rank) && !r.outside[rank].told && !held[node] {
			list = append(list, rank)
		}
	}
	return list
}

// begin tells ranks to go.
func (r *Releases) begin(ranks []int) error {
	d := &departure{told: time.Now(), ranks: ranks}
	d.since = d.told
	d.NodesBefore, d.Nodes = r.nodes, r.nodes
	for _, rank := range ranks {
		o := r.outside[rank]
		if err := r.tell(rank, orderGo); err != nil {
			return err
		}
		d.Steps = max(d.Steps, o.steps)
		if o.since.Before(d.since) {
			d.since = o.since
		}
	}
	d.Checkpoint = d.told.Sub(d.since).Seconds()
	r.now = d
	return nil
}

// tell gives a rank its last order.
func (r *Releases) tell(rank int, order Order) error {
	o := r.outside[rank]
	o.told = true
	if err := o.line.say(byte(order)); err != nil {
		return fmt.Errorf("rank %d: %w", rank, err)
	}
	return nil
}

// present returns the ranks that have not said goodbye, in order.
func (r *Releases) present() (list []int) {
	for rank := range r.Terms.Nodes {
		if o := r.outside[rank]; o == nil || !o.gone {
			list = append(list, rank)
		}
	}
	return list
}

// departure is a release under way.
type departure struct {
	Release
	ranks  []int
	since  time.Time // the first of the ranks lost its layers
	told   time.Time
	heard  time.Time     // the last goodbye; zero: there are some to come
	keep   []string      // nodes that the job is to keep
	answer chan struct{} // closed once the scheduler has answered; nil: it was not asked yet
	cancel context.CancelFunc
}

// advance goes on, and reports whether the release has ended.
func (d *departure) advance(r *Releases) bool {
	if d.heard.IsZero() && !d.collect(r) {
		return false
	}
	if d.answer == nil {
		d.keep = r.Terms.Kept(r.present())
		if r.Scheduler == nil || len(d.keep) == len(d.NodesBefore) {
			return d.end()
		}
		if time.Since(d.heard) < graceFor {
			return false
		}
		d.ask(r)
	}
	select {
	case <-d.answer:
		d.cancel()
		return d.answered(r)
	default:
		return false
	}
}

// collect takes goodbyes, and reports whether no more are waited for.
func (d *departure) collect(r *Releases) bool {
	d.Ranks, d.Silent = nil, nil
	for _, rank := range d.ranks {
		if r.outside[rank].gone {
			d.Ranks = append(d.Ranks, rank)
		} else {
			d.Silent = append(d.Silent, rank)
		}
	}
	if len(d.Silent) > 0 && time.Since(d.told) < goodbyeFor {
		return false
	}
	d.heard = time.Now()
	d.Goodbye = d.heard.Sub(d.told).Seconds()
	return true
}

// ask has the scheduler take the nodes back, beside the steps.
func (d *departure) ask(r *Releases) {
	d.answer = make(chan struct{})
	before, after := r.released, append(slices.Clone(r.released), without(r.nodes, d.keep)...)
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	go func() {
		defer close(d.answer)
		began := time.Now()
		if r.Reached != nil {
			r.Reached(d.Steps)(fault.Scontrol)
		}
		if d.Refused = r.note(after); d.Refused == nil {
			d.Tries, d.Refused = shrink(ctx, r.Scheduler, d.keep, r.Retry)
		}
		if d.Refused != nil {
			_ = r.note(before) // the refusal is what is told
		}
		d.Scheduler = time.Since(began).Seconds()
	}()
}

// note notes all nodes that were given back, with those that are about to be.
func (r *Releases) note(nodes []string) error {
	if r.Note == nil {
		return nil
	}
	return r.Note(nodes)
}

// answered takes what the scheduler has answered.
func (d *departure) answered(r *Releases) bool {
	if d.Refused == nil {
		r.released = append(r.released, without(r.nodes, d.keep)...)
		r.nodes, d.Nodes = d.keep, d.keep
	}
	return d.end()
}

func (d *departure) end() bool {
	d.Time = time.Now().UTC()
	d.Seconds = d.Time.Sub(d.since).Seconds()
	return true
}

// without returns the nodes of all that are not among those kept.
func without(all, kept []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(node string) bool { return slices.Contains(kept, node) })
}

// finishFor bounds what the end of a run waits for ranks that leave, and for the scheduler.
const finishFor = 15 * time.Second

// Finish waits for the release under way, but not long, and returns it as it is then; nil
// if there is none. The run is over: no other begins.
func (r *Releases) Finish() (*Release, error) {
	r.Terms.Mode = Park
	for began := time.Now(); r.now != nil; time.Sleep(orderEvery) {
		late := time.Since(began) > finishFor
		if late && r.now.answer != nil {
			r.now.cancel()
			<-r.now.answer
		} else if late {
			d := r.now
			r.now = nil
			d.collect(r)
			d.end()
			return &d.Release, nil
		}
		if ended, _, err := r.Poll(0); ended != nil || err != nil {
			return ended, err
		}
	}
	return nil, nil
}

// Dismiss tells the ranks that wait that the run is over, and waits until they have said
// goodbye, but not long. It returns those that have not.
func (r *Releases) Dismiss() (silent []int, err error) {
	for rank, o := range r.outside {
		if !o.told {
			if err := r.tell(rank, OrderEnd); err != nil {
				return nil, fmt.Errorf("release: %w", err)
			}
		}
	}
	for began := time.Now(); ; time.Sleep(orderEvery) {
		silent = nil
		for rank, o := range r.outside {
			if err := o.listen(&Asked{}); err != nil {
				return nil, fmt.Errorf("release: rank %d: %w", rank, err)
			}
			if !o.gone {
				silent = append(silent, rank)
			}
		}
		if len(silent) == 0 || time.Since(began) > finishFor {
			slices.Sort(silent)
			return silent, nil
		}
	}
}
