package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"dynmo/src/files"
	"dynmo/src/lab/layouts"
	"dynmo/src/record"
	"dynmo/src/schedule"
)

// exitNothing is the status of a search that found nothing better than what the user has.
const exitNothing = 3

// layoutCommand returns the command that finds pipeline layouts for other programs.
func layoutCommand() *cobra.Command {
	var costs, trainer, kind, memory string
	var r layouts.Request
	var asJSON bool
	var page, orders target
	c := &cobra.Command{
		Use:   "layout --costs FILE --stages P --microbatches M --for TRAINER",
		Short: "Find the pipeline layout of a model that another program trains",
		Long: `Find the pipeline layout of a model that another program trains.

FILE has the seconds of every layer: dynmo costs makes it of a trainer's log, and dynmo profile by
measuring. The search compares layouts by the simulated step of the trainer's own schedule, not by
the largest stage. It prints the best five, and what the trainer needs for the first. --layout is the
layout that you have now, in the notation of the trainer:

  megatron    Et*8|t*8|t*8|t*8L     (--pipeline-model-parallel-layout), or blocks as 8,8,8,8; with --half
              *-*-|*-*|-*-*-        (--hybrid-layer-pattern) too
  torchtitan  8,8,8,8               blocks of each virtual stage
  deepspeed   0,9,17,25,34          the first layer of each stage, and the number of layers; or
                                    uniform, parameters, type:REGEX (of names of layers)
  nanotron    8,8,8,8               blocks of each stage

"step" is the time of a step. "bound": no schedule of this layout's work is shorter. "fullest": the work of
the busiest stage. The idle shares of the step are means over the stages: of the schedule, if all parts were
equal; more, because they are unequal; more, because of messages. "1f1b x 1" is the schedule and the parts of
the model on each stage. Layouts whose steps are equal are ordered by the fullest stage, then by how equal the
stages are.

With one part of the model on each stage the best layout is proven: all others were compared, or cannot
be better (nanotron makes few layouts, and nearly all are compared). Messages take --message seconds (bytes of
a microbatch's activations over the bandwidth: 64 MB at 50 GB/s are 0.0013); without them more chunks look
better than they are. A gain counts if it is above twice its standard error, which follows from that of the
costs. Costs with bytes (dynmo profile) give the memory of stages, and --memory leaves out layouts that need
more. A first layout that needs more than the GPU of estimated costs has is named as such.

Exit status: 0 a layout is found; 2 bad input; 3 no layout is better than --layout by more than the
noise of the costs, and --layout is within --memory.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := layouts.TrainerNamed(trainer)
			if err != nil {
				return usageError{fmt.Errorf("--for %s: %w", trainer, err)}
			}
			r.Trainer, r.Schedule = t, schedule.Kind(kind)
			for _, n := range r.Chunks {
				err = cmp.Or(err, checkRange("chunks", n, 1, 64))
			}
			if err := cmp.Or(err, checkRange("stages", r.Stages, 1, 1024), checkRange("microbatches", r.Microbatches, 1, 1<<14)); err != nil {
				return err
			}
			if memory != "" {
				if r.Memory, err = size(memory); err != nil {
					return usageError{fmt.Errorf("--memory %w", err)}
				}
			}
			if !(r.Message >= 0 && r.Message <= 1) {
				return usageError{fmt.Errorf("--message %g: want seconds from 0 to 1", r.Message)}
			}
			if orders.path != "" && t.Name != "torchtitan" {
				return usageError{fmt.Errorf("--schedule-csv: %s reads no schedule, want --for torchtitan", t.Name)}
			}
			if err := cmp.Or(page.check(), orders.check()); err != nil {
				return err
			}
			series, notes, err := record.OpenSeries(costs, 0)
			if err != nil {
				return usageError{fmt.Errorf("--costs: %w", err)}
			}
			tellNotes(c.ErrOrStderr(), notes...)
			table := series.Costs()[len(series)-1].Mean()
			a, err := layouts.Plan(r, table)
			if err != nil {
				return usageError{err}
			}
			if err := tellAnswer(c, layoutAnswer{a, memoryOf(table)}, asJSON); err != nil {
				return err
			}
			if orders.path != "" {
				s, err := schedule.New(a.Best[0].Schedule, r.Stages, a.Best[0].Chunks, r.Microbatches)
				if err != nil {
					return usageError{err}
				}
				if err := orders.write(c, func(out io.Writer) error { return schedule.WriteCSV(out, s) }); err != nil {
					return err
				}
				fmt.Fprintf(c.ErrOrStderr(), "wrote %s, for pipeline_parallel_schedule_csv=%q\n", files.Visible(orders.path), orders.path)
			}
			if page.path != "" {
				if err := page.write(c, a.HTML); err != nil {
					return err
				}
				fmt.Fprintf(c.ErrOrStderr(), "wrote %s\n", files.Visible(page.path))
			}
			if !a.Better {
				return statusError(exitNothing)
			}
			return nil
		},
	}
	c.Flags().StringVar(&costs, "costs", "", "seconds of the layers; - is standard input")
	c.Flags().IntVar(&r.Stages, "stages", 0, "stages of the pipeline")
	c.Flags().IntSliceVar(&r.Chunks, "chunks", nil, "parts of the model on each stage (virtual stages) to search, as 1,2,4 (default those of --layout, or 1)")
	c.Flags().IntVar(&r.Microbatches, "microbatches", 0, "microbatches of a step, on each replica")
	c.Flags().StringVar(&trainer, "for", "", "trainer, one of "+strings.Join(layouts.TrainerNames(), ", "))
	c.Flags().StringVar(&r.Present, "layout", "", "the layout that you have now")
	c.Flags().StringVar(&kind, "schedule", "", "schedule of the trainer (default 1f1b, or interleaved with chunks)")
	c.Flags().Float64Var(&r.Message, "message", 0, "seconds of a message between two stages")
	c.Flags().StringVar(&memory, "memory", "", "memory of a stage, such as 80GB; empty: no limit")
	c.Flags().BoolVar(&r.Half, "half", false, "cut blocks between attention and MLP too; layouts are then blocks of each virtual stage, as 8.5,7.5")
	page.flags(c, "html", "", "page to write, with the present and the best step as pictures")
	orders.named(c, "schedule-csv", "", "schedule to write in PyTorch's CSV, for torchtitan's pipeline_parallel_schedule_csv")
	c.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	require(c, "costs", "stages", "microbatches", "for")
	return c
}

// layoutAnswer is the output of dynmo layout.
type layoutAnswer struct {
	layouts.Answer
	Memory int64 `json:"gpu_memory_bytes,omitempty"` // of the GPU that the costs were estimated for; 0: unknown
}

func (a layoutAnswer) print(out io.Writer) error {
	fmt.Fprintf(out, "%d stages; simulated (clock=%s), costs %s\n\n", a.Stages, a.Clock, a.Costs)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\tstep s\tbound s\tfullest s\tidle: schedule\timbalance\tmessages\tmemory GB\tschedule\tlayout\n")
	row := func(name string, l layouts.Named) {
		share := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x/l.Seconds) }
		fullest, most := 0.0, int64(0)
		for stage, x := range l.Busy {
			fullest, most = max(fullest, x), max(most, l.Bytes[stage])
		}
		memory := "-"
		if most > 0 {
			memory = fmt.Sprintf("%.1f", float64(most)/1e9)
		}
		fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%.4f\t%s\t%s\t%s\t%s\t%s x %d\t%s\n", name, l.Seconds, l.Bound, fullest,
			share(l.Idle.Inherent), share(l.Idle.Imbalance), share(l.Idle.Messages), memory, l.Schedule, l.Chunks, l.Text)
	}
	if a.Present != nil {
		row("present", *a.Present)
	}
	for i, l := range a.Best {
		row(fmt.Sprint(i+1), l)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if a.Proven {
		fmt.Fprint(out, "No layout is better than the first: all others were compared, or cannot be better.\n")
	} else {
		fmt.Fprintf(out, "No layout can take less than %.4f s; the first is within %.1f %% of that.\n", a.Bound, 100*(a.Best[0].Seconds/a.Bound-1))
	}
	memory := func(name string, list []int64) {
		if slices.Max(list) == 0 {
			return
		}
		fmt.Fprintf(out, "GB of %s by stage:", name)
		for _, b := range list {
			fmt.Fprintf(out, " %.1f", float64(b)/1e9)
		}
		fmt.Fprintln(out)
	}
	if a.Present != nil {
		memory("the present layout", a.Present.Bytes)
	}
	memory("the first", a.Best[0].Bytes)
	if most := slices.Max(a.Best[0].Bytes); a.Memory > 0 && most > a.Memory {
		fmt.Fprintf(out, "The first needs %.1f GB on a stage, and the GPU of the costs has %.1f GB: --memory sets a limit. Masters and moments count whole, also if the trainer shares them out.\n",
			float64(most)/1e9, float64(a.Memory)/1e9)
	}
	for _, reason := range a.LeftOut {
		fmt.Fprintf(out, "Left out: %s.\n", reason)
	}
	noise := "with an unknown error of the costs"
	if a.Noise != nil {
		noise = fmt.Sprintf("± %.3f", *a.Noise)
	}
	switch {
	case a.Crowded:
		fmt.Fprintf(out, "The present layout is above the limit on memory. The first is %.3f times as fast, %s.\n", *a.Gain, noise)
	case a.Present != nil && !a.Better:
		fmt.Fprintf(out, "Nothing is better than the present layout by more than the noise of the costs: %.3f times as fast, %s.\n", *a.Gain, noise)
		return nil
	case a.Present != nil:
		fmt.Fprintf(out, "The first is %.3f times as fast as the present layout, %s.\n", *a.Gain, noise)
	}
	if most := slices.Max(a.Best[0].Bytes); most == 0 {
		fmt.Fprint(out, "Memory was not checked: the costs have no bytes. The first stages hold the most microbatches.\n")
	}
	_, err := fmt.Fprintf(out, "\n%s\n\n%s\n", a.Text, a.Change)
	return err
}
