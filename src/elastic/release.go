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
	// goodbyeFor is how long a rank may take to confirm (say goodbye) once it is ordered to leave.
	goodbyeFor = time.Minute
	// graceFor is how long ranks that have said goodbye may take to end. Slurm ends the whole job
	// step if it has to kill a rank on a node that it takes back.
	graceFor = 1500 * time.Millisecond
)

// Release reports how ranks left before the end of the run, and whether their nodes were given back.
// Ranks are those of the launched world.
type Release struct {
	Steps       int       // steps of the run that were done when the last of these ranks lost its layers
	NodesBefore []string  // nodes of the job before the release
	Nodes       []string  // nodes of the job after the release
	Ranks       []int     // ranks that left
	Silent      []int     // ranks that were ordered to leave but did not say goodbye within a minute
	Seconds     float64   // seconds from the first of these ranks losing its layers to the end of the release
	Checkpoint  float64   // seconds of them until the ranks were ordered to leave: until a checkpoint was written
	Goodbye     float64   // seconds from the order to the last goodbye
	Scheduler   float64   // seconds from the request until the batch system had taken the nodes back, or refused
	Tries       int       // requests to the batch system
	Refused     error     // why nodes were not taken back; nil if they were, or if no node was free
	Time        time.Time // end of the release, UTC
}

// outsider is rank 0's record of a rank that holds no layer.
type outsider struct {
	steps   int             // steps of the run that were done when the rank lost its last layer
	since   time.Time       // when the rank lost its last layer
	channel *controlChannel // to the rank
	ordered bool            // to leave or to end
	gone    bool            // the rank has said goodbye
}

// Releases is rank 0's side of the ranks that hold no layer. Rank 0 calls Add when ranks lose their
// last layer, and Poll between steps. Poll never waits. At the end of the run rank 0 calls Finish,
// then Dismiss; these two wait for a short time. One goroutine uses a Releases.
type Releases struct {
	Terms     Terms
	Scheduler Scheduler     // takes nodes back; nil unless the mode is Slurm
	Retry     time.Duration // for how long a busy batch system is asked again, every 2 s
	// Note, if not nil, records the nodes that were given back. It is called before the batch
	// system is asked, with all nodes given back so far and the nodes that are about to be. If the
	// batch system refuses, Note is called again, without the latter. If Note fails, the batch
	// system is not asked. Note is called on a goroutine of its own.
	Note func(nodes []string) error
	// Reached, if not nil, lets a test inject faults. Reached(steps) returns a function, which is
	// called with fault.Scontrol before the batch system is asked. steps is Release.Steps.
	Reached func(steps int) func(fault.Phase)

	base     *comm.Group
	outside  map[int]*outsider // by rank of the launched world
	nodes    []string          // nodes that the job has now
	released []string          // nodes that were given back
	now      *departure        // the release under way; nil: none
}

// NewReleases returns the Releases of rank 0. base is the launched world. All ranks hold layers.
func NewReleases(base *comm.Group, t Terms) *Releases {
	all := make([]int, base.Size())
	for rank := range all {
		all[rank] = rank
	}
	return &Releases{Terms: t, base: base, outside: make(map[int]*outsider), nodes: t.Kept(all)}
}

// Add records that the given ranks of the launched world lost their last layer after steps steps of the
// run. These ranks call Await.
func (r *Releases) Add(steps int, ranks []int) error {
	for _, rank := range ranks {
		c, err := openChannel(r.base, rank, comm.TagWord, comm.TagOrder)
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
		r.outside[rank] = &outsider{steps: steps, since: time.Now(), channel: c}
	}
	return nil
}

// Asked reports requests (signals) to the processes of ranks without layers since the last Poll: to
// stop the run, or to save a checkpoint.
type Asked struct{ Stop, Save bool }

// Poll continues a release or begins one, without waiting. saved is the number of steps after which
// the last checkpoint was written; math.MaxInt if the run writes none. A rank leaves only if it lost
// its last layer after at most saved steps, since that checkpoint does not need the rank. Poll returns a Release that has just ended, nil
// if none has.
func (r *Releases) Poll(saved int) (*Release, Asked, error) {
	var asked Asked
	for rank, o := range r.outside {
		if err := o.receiveMessages(&asked); err != nil {
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

// receiveMessages receives the rank's messages that have arrived, and adds its requests to asked.
func (o *outsider) receiveMessages(asked *Asked) error {
	for !o.gone {
		message, err := o.channel.poll()
		switch {
		case err != nil:
			return err
		case message == 0:
			return nil
		case message == messageGoodbye:
			o.gone = true
			return nil
		}
		asked.Stop = asked.Stop || message == messageStop
		asked.Save = asked.Save || message == messageSave
		if err := o.channel.startReceive(); err != nil {
			return err
		}
	}
	return nil
}

// ready returns the ranks that can leave, in ascending order: ranks that held no layer when the last
// checkpoint was written. In mode Slurm either all ranks of a node leave or none, since Slurm takes
// back whole nodes.
func (r *Releases) ready(saved int) []int {
	can := func(rank int) bool {
		o := r.outside[rank]
		return o != nil && (o.ordered || o.steps <= saved)
	}
	held := make(map[string]bool)
	for rank, node := range r.Terms.Nodes {
		held[node] = r.Terms.Mode == Slurm && (held[node] || !can(rank))
	}
	var list []int
	for rank, node := range r.Terms.Nodes {
		if can(rank) && !r.outside[rank].ordered && !held[node] {
			list = append(list, rank)
		}
	}
	return list
}

// begin orders ranks to leave.
func (r *Releases) begin(ranks []int) error {
	d := &departure{ordered: time.Now(), ranks: ranks}
	d.since = d.ordered
	d.NodesBefore, d.Nodes = r.nodes, r.nodes
	for _, rank := range ranks {
		o := r.outside[rank]
		if err := r.order(rank, orderLeave); err != nil {
			return err
		}
		d.Steps = max(d.Steps, o.steps)
		if o.since.Before(d.since) {
			d.since = o.since
		}
	}
	d.Checkpoint = d.ordered.Sub(d.since).Seconds()
	d.late, d.grace = newTimer(goodbyeFor), newTimer(0)
	r.now = d
	return nil
}

// order gives a rank its only order.
func (r *Releases) order(rank int, order Order) error {
	o := r.outside[rank]
	o.ordered = true
	if err := o.channel.startSend(byte(order)); err != nil {
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
	ranks   []int
	since   time.Time     // when the first of the ranks lost its layers
	ordered time.Time     // when the ranks were ordered to leave
	late    timer         // for goodbyes
	heard   time.Time     // when the last goodbye came; zero: goodbyes are missing
	grace   timer         // for the ranks to end, since heard
	keep    []string      // nodes that the job keeps
	answer  chan struct{} // closed once the scheduler has answered; nil: it was not asked yet
	cancel  context.CancelFunc
}

// advance continues the release without waiting, and reports whether the release has ended.
func (d *departure) advance(r *Releases) bool {
	if d.heard.IsZero() && !d.collect(r) {
		return false
	}
	if d.answer == nil {
		d.keep = r.Terms.Kept(r.present())
		if r.Scheduler == nil || len(d.keep) == len(d.NodesBefore) {
			return d.end()
		}
		if !d.grace.passed.Load() {
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

// collect counts the goodbyes, and reports whether all ranks have said goodbye or have taken too long.
func (d *departure) collect(r *Releases) bool {
	d.Ranks, d.Silent = nil, nil
	for _, rank := range d.ranks {
		if r.outside[rank].gone {
			d.Ranks = append(d.Ranks, rank)
		} else {
			d.Silent = append(d.Silent, rank)
		}
	}
	if len(d.Silent) > 0 && !d.late.passed.Load() {
		return false
	}
	d.heard, d.grace = time.Now(), newTimer(graceFor)
	d.Goodbye = d.heard.Sub(d.ordered).Seconds()
	return true
}

// ask asks the scheduler, on a goroutine of its own, to take the nodes back. Steps go on meanwhile.
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
			_ = r.note(before) // the refusal is reported, not this error
		}
		d.Scheduler = time.Since(began).Seconds()
	}()
}

// note calls Note if there is one.
func (r *Releases) note(nodes []string) error {
	if r.Note == nil {
		return nil
	}
	return r.Note(nodes)
}

// answered records the scheduler's answer.
func (d *departure) answered(r *Releases) bool {
	if d.Refused == nil {
		r.released = append(r.released, without(r.nodes, d.keep)...)
		r.nodes, d.Nodes = d.keep, d.keep
	}
	return d.end()
}

func (d *departure) end() bool {
	d.late.stop()
	d.grace.stop()
	d.Time = time.Now().UTC()
	d.Seconds = d.Time.Sub(d.since).Seconds()
	return true
}

// without returns the nodes of all that are not in kept.
func without(all, kept []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(node string) bool { return slices.Contains(kept, node) })
}

// finishFor is how long the end of a run waits for ranks that leave, and for the scheduler.
const finishFor = 15 * time.Second

// Finish waits up to 15 s for the release under way, and returns the release as it is then; nil if there
// is none. After 15 s it cancels a request to the batch system. No other release begins afterwards.
func (r *Releases) Finish() (*Release, error) {
	r.Terms.Mode = Park
	for deadline := comm.NewDeadline(finishFor); r.now != nil; time.Sleep(orderEvery) {
		late := deadline.Passed()
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

// Dismiss orders all waiting ranks to end, since the run is over. It waits up to 15 s until all ranks
// without layers have said goodbye. It returns the ranks that have not, in ascending order. The caller
// has called Finish before.
func (r *Releases) Dismiss() (silent []int, err error) {
	for rank, o := range r.outside {
		if !o.ordered {
			if err := r.order(rank, OrderEnd); err != nil {
				return nil, fmt.Errorf("release: %w", err)
			}
		}
	}
	for deadline := comm.NewDeadline(finishFor); ; time.Sleep(orderEvery) {
		silent = nil
		for rank, o := range r.outside {
			if err := o.receiveMessages(&Asked{}); err != nil {
				return nil, fmt.Errorf("release: rank %d: %w", rank, err)
			}
			if !o.gone {
				silent = append(silent, rank)
			}
		}
		if len(silent) == 0 || deadline.Passed() {
			slices.Sort(silent)
			return silent, nil
		}
	}
}
