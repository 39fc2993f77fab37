package train

import (
	"fmt"

	"dynmo/src/checkpoint"
	"dynmo/src/config"
	"dynmo/src/files"
	"dynmo/src/model"
)

// keepers returns the parts of the run whose state a checkpoint saves, by their names there.
func (r *Rank) keepers() map[string]checkpoint.Keeper {
	return checkpoint.Keepers(map[string]any{"balancer": r.Balancer, "dynamism": r.dynamism, "profiler": &r.profiler})
}

// ranks describes the hosts, clock and kernels on which this run measures seconds.
func (r *Rank) ranks(hosts []string) checkpoint.Ranks {
	return checkpoint.Ranks{Hosts: hosts, Clock: r.Device.Clock().Kind(), Kernels: r.Backend.Name()}
}

// resume continues from the newest checkpoint, and reports whether there is one. Collective.
func (r *Rank) resume(shape model.Config) (found bool, err error) {
	reader := checkpoint.Reader{
		Config: r.Config, World: r.World, Exec: r.x, Corpus: r.Corpus, Layout: r.layout, Stage: r.world.Stages.Rank(), Shape: shape,
	}
	c, err := reader.Newest(r.Resume)
	if c == nil || err != nil {
		return false, err
	}
	r.from, r.layout, r.stage, r.skipped = *c, c.Layout, c.Stage, c.Skipped
	r.from.Anew, err = r.recall(c.Was, c.State)
	return true, err
}

// Resumed describes the checkpoint that the run resumes from.
func (r *Rank) Resumed() checkpoint.Resumed { return r.from.Resumed }

// recall restores the state in text, which a checkpoint with settings was holds. If it cannot,
// measurements and the balancer begin anew, and why says the reason. An older checkpoint has no
// state.
func (r *Rank) recall(was config.Config, text []byte) (why string, err error) {
	if len(text) == 0 {
		return "", nil
	}
	here := checkpoint.Here{Ranks: r.ranks(r.World.Hosts()), Now: r.Config, Was: was}
	s, failed := checkpoint.ReadState(text)
	if failed == nil {
		failed = s.Restore(here, r.keepers(), r.layout)
	}
	if failed == nil {
		r.spent = s.Spent
		return "", nil
	}
	why = brief(failed)
	if err := r.begin(); err != nil {
		return why, err
	}
	dense, failed := s.Reference(here)
	if failed == nil && dense != nil {
		failed = r.Balancer.SetReference(*dense)
	}
	if failed != nil {
		why += "; " + brief(failed)
	}
	return why, nil
}

// brief shortens an error about a file to at most 400 characters for a line of the log.
func brief(err error) string { return fmt.Sprintf("%.400s", files.Visible(err.Error())) }
