package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"dynmo/src/elastic"
	"dynmo/src/files"
)

// refusedKey is the detail of an event with the reason why Slurm took no nodes back or a move was
// not possible.
const refusedKey = "refused"

// Warn prints a warning for users, for example about a setting without effect.
func (j *Journal) Warn(text string) {
	if j != nil {
		j.observe.Say("warning: " + oneLine(text))
	}
}

// Released records a release that has ended. It does nothing if e is nil.
func (j *Journal) Released(mode elastic.Mode, e *elastic.Release) error {
	if j == nil || e == nil {
		return nil
	}
	r := Released{
		Mode: string(mode), NodesBefore: e.NodesBefore, Nodes: e.Nodes, Ranks: e.Ranks, Tries: e.Tries, Time: e.Time,
		Checkpoint: Float(e.Checkpoint), Goodbye: Float(e.Goodbye), Scontrol: Float(e.Scheduler),
	}
	step := e.Steps - 1
	if e.Refused != nil {
		r.Refused = oneLine(e.Refused.Error())
		j.Warn(fmt.Sprintf("step %d: %v", step, r))
	} else {
		j.observe.Say(fmt.Sprintf("step %d: %v", step, r))
	}
	if len(e.Silent) > 0 {
		j.Warn(fmt.Sprintf("step %d: no goodbye of ranks %s: their nodes are kept", step, Ranges(e.Silent)))
	}
	j.detailed(Event{Step: step, Kind: Release, Seconds: Float(e.Seconds)}, r)
	return j.err
}

// Restart records, after a number of steps, the allocation on which the run will start again. It
// also writes that allocation into the run directory. took is the time of the last checkpoint.
// Restart does nothing on ranks other than 0. It also does nothing if n is nil: then the run does
// not end to give nodes back.
func (j *Journal) Restart(dir string, steps int, n *elastic.Next, took time.Duration) error {
	if j == nil || n == nil {
		return nil
	}
	text, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("%s: %w", nextFile, err)
	}
	if err := files.WriteText(filepath.Join(dir, nextFile), string(text)+"\n"); err != nil {
		return err
	}
	seconds := took.Seconds()
	return j.Released(elastic.Restart, &elastic.Release{
		Steps: steps, NodesBefore: n.Before, Nodes: n.Nodes, Ranks: n.Idle, Seconds: seconds, Checkpoint: seconds, Time: time.Now().UTC(),
	})
}

// NoteReleased writes into the run directory the nodes that the present start of the run has given
// back, including those it gives back now.
func NoteReleased(dir string, nodes []string) error {
	var text strings.Builder
	for _, node := range nodes {
		text.WriteString(node + "\n")
	}
	return files.WriteText(filepath.Join(dir, releasedFile), text.String())
}

// ForgetReleased removes the list of an earlier start, because its nodes may belong to this start
// again.
func ForgetReleased(dir string) error {
	if err := os.Remove(filepath.Join(dir, releasedFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// KeepProducts writes into the run directory the algorithms that compute dense products.
func KeepProducts(dir string, products []byte) error {
	return files.WriteText(filepath.Join(dir, productsFile), string(products)+"\n")
}

// oneLine replaces the line ends of a text.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
