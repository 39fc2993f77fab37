package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/lab/figures"
	"dynmo/src/lab/roofline"
)

// figuresCommand returns the command that draws the figures of the scaling study.
func figuresCommand() *cobra.Command {
	var only []string
	var output, mesh, collect, command string
	var remake, keep, check bool
	o := figures.Options{}
	var shows strings.Builder
	names, what := figures.Names()
	for i, name := range names {
		fmt.Fprintf(&shows, "  %-16s %s\n", name, what[i])
	}
	c := &cobra.Command{
		Use:   "figures -o DIR | --check FILE... | --collect NAME RUN_DIR...",
		Short: "Draw the figures and tables of the scaling study, with the paper's numbers beside",
		Long: `Draw the figures and tables of the scaling study, with the paper's numbers beside.
DIR gets of each figure NAME.svg, .png and .pdf, as wide as a column of a paper (85 mm), and its
numbers as NAME.md and .csv. Pictures state clock, cost table, mesh and schedule. NAME.md also
has the workloads, the command that made the numbers, and tables that are too long for a picture.

` + shows.String() + `
The numbers are kept in the folder figures of --results. --remake simulates them anew, by the
files of its folder workloads and on estimated costs. It writes them into the folder DIR-remade,
which --results takes to draw them again; --keep writes them over the kept ones instead. A
figure whose numbers are missing or were made otherwise is named, the others are drawn.

--remake --workload FILE makes figures of one workload alone, which may lie anywhere. --check
reads files of workloads with the settings and costs of their models, and simulates nothing.
dynmo help workloads says what such a file has.

--collect NAME keeps the last phase of run directories in the folder executed, measured and
simulated on its own costs. It refuses runs that dynmo simulate made up. NAME is FIGURE-WORDS, as fig3-8-ranks: FIGURE then has a
panel of them (fig3, fig7, fig8, table1).`,
		RunE: func(c *cobra.Command, args []string) error {
			switch err := checkFigureFlags(c); {
			case err != nil:
				return err
			case collect != "" && len(args) > 0:
				if err := figures.Collect(o.Results, collect, command, args); err != nil {
					return usageError{err}
				}
				return nil
			case keep && !remake:
				return usageError{errors.New("--keep: no effect without --remake")}
			case collect != "":
				return usageError{errors.New("--collect: want run directories behind it")}
			case check && len(args) == 0:
				return usageError{errors.New("--check: want files of workloads behind it")}
			case !check && len(args) > 0:
				return usageError{fmt.Errorf("%s: run directories stand behind --collect NAME, workloads behind --check", args[0])}
			case !check && output == "":
				return usageError{errors.New("-o: want a folder for pictures and tables")}
			case o.Workload != "" && !remake:
				return usageError{errors.New("--workload: no effect without --remake")}
			case o.Workload != "" && keep:
				return usageError{errors.New("--keep, --workload: the kept study has all workloads, want one of both")}
			}
			if len(only) == 0 {
				only = names
			}
			if err := checkNames("only", only, names); err != nil {
				return err
			}
			if err := checkNames("estimate", []string{o.Costs}, roofline.Names()); err != nil {
				return err
			}
			if err := checkNames("grain", []string{o.Grain}, []string{"block", "half"}); err != nil {
				return err
			}
			if err := checkRange("seeds", o.Seeds, 1, 10); err != nil {
				return err
			}
			if mesh != "" {
				if _, err := fmt.Sscanf(mesh+"\n", "%dx%d\n", &o.Mesh[0], &o.Mesh[1]); err != nil || o.Mesh[0] < 1 || o.Mesh[1] < 1 {
					return usageError{fmt.Errorf("--mesh %s: want STAGESxREPLICAS, as 8x90", mesh)}
				}
			}
			if check {
				return checkWorkloads(c, args, o)
			}
			for _, flag := range append([]string{"workload"}, figureOptions...) {
				f := c.Flags().Lookup(flag)
				oneSeed := flag == "seeds" && o.Seeds == 1 // all figures have that
				if f.Value.String() != f.DefValue && !oneSeed {
					if err := figures.CheckOption(flag, only); err != nil {
						return usageError{err}
					}
				}
			}
			if about, err := os.Stat(o.Results); err != nil || !about.IsDir() {
				return usageError{fmt.Errorf("--results %s: no such folder", o.Results)}
			}
			o.Revision, o.Show = thisBinary().Revision, barOf(c).Show
			if !remake {
				return drawFigures(c, only, output, func(name string) (figures.Figure, error) { return keptFigure(c, name, o) })
			}
			made, err := madeFolder(output, keep, o.Results)
			if err != nil {
				return err
			}
			maker, err := figures.NewMaker(o)
			if err != nil {
				return usageError{err}
			}
			wrote := false
			err = drawFigures(c, only, output, func(name string) (figures.Figure, error) {
				f, err := maker.Make(name)
				if err == nil {
					err = f.Write(made)
				}
				if err != nil {
					return figures.Figure{}, err
				}
				wrote = true
				return figures.Read(made, o.Results, name)
			})
			if wrote {
				fmt.Fprintf(c.OutOrStdout(), "numbers: %s\n", filepath.Join(made, "figures"))
			}
			return err
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "folder for pictures and tables; files of their names are replaced")
	c.Flags().StringSliceVar(&only, "only", nil, "figures to draw, some of "+strings.Join(names, ", "))
	c.Flags().StringVar(&o.Results, "results", "results", "folder of kept results")
	c.Flags().BoolVar(&remake, "remake", false, "simulate the figures anew, which takes minutes")
	c.Flags().BoolVar(&keep, "keep", false, "of --remake: write the numbers over those of --results")
	c.Flags().StringVar(&o.Workload, "workload", "", "of --remake: the file of the only workload")
	c.Flags().BoolVar(&check, "check", false, "check files of workloads")
	c.Flags().StringVar(&o.Costs, "estimate", figures.DefaultCosts, "costs of GPT's blocks, of "+strings.Join(roofline.Names(), ", "))
	c.Flags().StringVar(&mesh, "mesh", "", "STAGESxREPLICAS of all kinds; empty: the paper's")
	c.Flags().StringVar(&o.Grain, "grain", "block", "whole layers that move: block, or half of one")
	c.Flags().IntVar(&o.Seeds, "seeds", figures.DefaultSeeds, "runs of each cell that --remake simulates, from 1 to 10")
	c.Flags().StringVar(&collect, "collect", "", "keep executed runs under this name")
	c.Flags().StringVar(&command, "made-by", "dynmo train", "of --collect: the command that made the runs")
	return c
}

// figureOptions are the flags that change the numbers of figures.
var figureOptions = []string{"estimate", "mesh", "grain", "seeds"}

// checkFigureFlags refuses flags that have no effect beside --collect, --check or neither.
func checkFigureFlags(c *cobra.Command) error {
	does, without := "without --collect", []string{"made-by"}
	draws := []string{"output", "only", "remake", "keep", "workload", "seeds"}
	switch {
	case c.Flags().Changed("collect"):
		does, without = "with --collect", append(draws, "check", "estimate", "mesh", "grain")
	case c.Flags().Changed("check"):
		does, without = "with --check", append(draws, "made-by", "results")
	}
	for _, flag := range without {
		if c.Flags().Changed(flag) {
			return usageError{fmt.Errorf("--%s: no effect %s", flag, does)}
		}
	}
	return nil
}

// checkWorkloads says of each workload file what it is about, or what is wrong with it.
func checkWorkloads(c *cobra.Command, paths []string, o figures.Options) error {
	var problems []error
	for _, path := range paths {
		line, err := figures.CheckWorkload(path, o)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		fmt.Fprintln(c.OutOrStdout(), line)
	}
	if len(problems) > 0 {
		return usageError{errors.Join(problems...)}
	}
	return nil
}

// madeFolder returns the folder for numbers that --remake makes: beside the pictures, or the kept
// results themselves.
func madeFolder(output string, keep bool, results string) (string, error) {
	if keep {
		return results, nil
	}
	made, err := filepath.Abs(output)
	if err != nil {
		return "", err
	}
	made += "-remade"
	if a, err := os.Stat(made); err == nil {
		if b, err := os.Stat(results); err == nil && os.SameFile(a, b) {
			return "", usageError{fmt.Errorf("--results %s: -o %s would write over it, want another -o, or --keep", results, output)}
		}
	}
	return made, nil
}

// drawFigures draws the figures that of returns. It draws as many as it can, and returns the errors
// of the others.
func drawFigures(c *cobra.Command, names []string, output string, of func(name string) (figures.Figure, error)) error {
	var problems []error
	for _, name := range names {
		f, err := of(name)
		if err != nil {
			problems = append(problems, err)
		}
		if len(f.Panels) == 0 {
			continue
		}
		if err := f.Save(output); err != nil {
			problems = append(problems, err)
			continue
		}
		fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", name, f.Title)
	}
	if len(problems) > 0 {
		return usageError{errors.Join(problems...)}
	}
	return nil
}

// keptFigure returns a figure from kept numbers. It refuses numbers that other options made.
func keptFigure(c *cobra.Command, name string, o figures.Options) (figures.Figure, error) {
	f, err := figures.Read(o.Results, o.Results, name)
	for _, flag := range figureOptions {
		if len(f.Panels) > 0 && c.Flags().Changed(flag) && figures.CheckOption(flag, []string{name}) == nil {
			if other := f.Matches(flag, c.Flags().Lookup(flag).Value.String()); other != nil {
				return figures.Figure{}, other
			}
		}
	}
	return f, err
}
