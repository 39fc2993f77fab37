package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"dynmo/src/elastic"
	"dynmo/src/fault"
	"dynmo/src/layout"
	"dynmo/src/record"
	"dynmo/src/replace"
)

// Next is on what a run is to go on that has ended for it.
type Next struct {
	Stages int      `json:"stages"`
	Nodes  []string `json:"nodes"` // of the job

	before []string // nodes until then
	idle   []int    // ranks that are not needed any more
}

// startReleases makes ready for ranks that come to hold no layer.
func (r *Rank) startReleases() error {
	if r.Terms == nil {
		r.Terms = &elastic.Terms{Mode: elastic.Park}
		if wanted := elastic.Mode(r.Config.Elastic.Release); r.Config.Packs() && (wanted == elastic.Slurm || wanted == elastic.Restart) {
			r.journal.Warn(fmt.Sprintf("elastic.release = %q: ranks of one process have no nodes to give back, want `srun --mpi=pmix`", wanted))
		}
		return nil
	}
	if r.Terms.Mode == elastic.Restart && r.saver.dir == "" {
		t := *r.Terms
		t.Mode, t.Unmet = elastic.Park, `elastic.release = "restart": the run keeps no checkpoint, want a run directory and checkpoint.every other than "never"`
		r.Terms = &t
	}
	if r.World.Rank() != 0 {
		return nil
	}
	if r.Terms.Unmet != "" {
		r.journal.Warn(r.Terms.Unmet + "; ranks that come to hold no layer wait for the end of the run")
	}
	r.releases = elastic.NewReleases(r.World, *r.Terms)
	r.releases.Reached = r.reached
	if r.Terms.Mode != elastic.Slurm {
		return nil
	}
	r.releases.Scheduler = r.Terms.Job
	r.releases.Retry = time.Duration(r.Config.Elastic.RetrySeconds * float64(time.Second))
	if r.RunDir == "" {
		return nil
	}
	r.releases.Note = func(nodes []string) error {
		return replace.Write(filepath.Join(r.RunDir, record.ReleasedFile), func(w io.Writer) error {
			_, err := io.WriteString(w, lines(nodes))
			return err
		})
	}
	if err := os.Remove(filepath.Join(r.RunDir, record.ReleasedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // of an earlier start, whose nodes may be this one's again
	}
	return nil
}

// lines writes a text a line.
func lines(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, "\n") + "\n"
}

// restarts returns on what the run is to go on where a layout of fewer stages means its
// end, nil where it does not.
func (r *Rank) restarts(present, next layout.Layout) *Next {
	if r.Terms.Mode != elastic.Restart || next.Stages() >= present.Stages() {
		return nil
	}
	return &Next{next.Stages(), r.Terms.Kept(next.WorldRanks()), r.Terms.Kept(present.WorldRanks()), lost(present, next)}
}

// lost returns the ranks of the launched world that the present layout has and the next
// has not.
func lost(present, next layout.Layout) (list []int) {
	for _, rank := range present.WorldRanks() {
		if _, stays := next.Place(rank); !stays {
			list = append(list, rank)
		}
	}
	return list
}

// park has rank 0 look after the ranks that the next layout has no place for any more, after
// so many steps.
func (r *Rank) park(steps int, present, next layout.Layout) error {
	if r.releases == nil {
		return nil
	}
	return r.releases.Add(steps, lost(present, next))
}

// Await waits for what rank 0 orders, on a rank that the others went on without after so
// many steps, which holds nothing any more but the launched world.
func (r *Rank) Await(steps int) (elastic.Order, error) {
	save := r.Save
	if save == nil {
		save = func() bool { return false }
	}
	return elastic.Await(r.World, steps, r.Stop, save, r.reached(steps))
}

// reached returns what is to be called in every phase of leaving.
func (r *Rank) reached(steps int) func(fault.Phase) {
	if kill := r.killer(steps); kill != nil {
		return kill
	}
	return func(fault.Phase) {}
}

// poll goes on with ranks that leave, once the last checkpoint holds so many steps.
func (r *Rank) poll(saved int) error {
	if r.releases == nil {
		return nil
	}
	if r.saver.dir == "" {
		saved = math.MaxInt
	}
	ended, asked, err := r.releases.Poll(saved)
	r.asked.Stop, r.asked.Save = r.asked.Stop || asked.Stop, r.asked.Save || asked.Save
	return errors.Join(err, r.released(ended))
}

// released tells a release that has ended, if one has.
func (r *Rank) released(e *elastic.Release) error {
	if e == nil {
		return nil
	}
	about := record.Released{
		Mode: string(r.Terms.Mode), NodesBefore: e.NodesBefore, Nodes: e.Nodes, Ranks: e.Ranks, Tries: e.Tries, Time: e.Time,
		Checkpoint: record.Float(e.Checkpoint), Goodbye: record.Float(e.Goodbye), Scontrol: record.Float(e.Scheduler),
	}
	if e.Refused != nil {
		about.Refused = e.Refused.Error()
	}
	return r.journal.Released(e.Steps-1, e.Seconds, about, e.Silent)
}

// finishReleases ends what goes on with ranks that leave, on rank 0, for which the others
// wait.
func (r *Rank) finishReleases(w elastic.World) error {
	if w.All.Size() < r.World.Size() {
		w.All.SetDeadline(startFor)
		w.All.SetPatience(startFor)
		w.All.Post().SetPatience(startFor)
	}
	if r.releases == nil {
		return nil
	}
	ended, err := r.releases.Finish()
	return errors.Join(err, r.released(ended))
}

// dismiss has ranks without layers end with the others.
func (r *Rank) dismiss() error {
	if r.releases == nil {
		return nil
	}
	silent, err := r.releases.Dismiss()
	if len(silent) > 0 {
		r.journal.Warn(fmt.Sprintf("ranks %s do not end with the others", record.Ranges(silent)))
	}
	return err
}

// leaveNext has rank 0 write into the run directory on what the run is to go on after so
// many steps.
func (r *Rank) leaveNext(steps int, n *Next) error {
	if n == nil || r.World.Rank() != 0 {
		return nil
	}
	text, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("%s: %w", record.NextFile, err)
	}
	err = replace.Write(filepath.Join(r.RunDir, record.NextFile), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
	if err != nil {
		return err
	}
	took := r.saver.took.Seconds()
	return r.journal.Released(steps-1, took, record.Released{
		Mode: string(r.Terms.Mode), NodesBefore: n.before, Nodes: n.Nodes, Ranks: n.idle,
		Checkpoint: record.Float(took), Time: time.Now().UTC(),
	}, nil)
}
