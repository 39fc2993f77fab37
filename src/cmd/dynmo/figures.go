package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/figures"
	"dynmo/src/study/roofline"
)

// figuresCommand returns the command that draws the figures of the scaling study.
func figuresCommand() *cobra.Command {
	var only []string
	var output, mesh string
	var remake bool
	o := figures.Options{}
	var shows strings.Builder
	for _, name := range figures.Names() {
		fmt.Fprintf(&shows, "  %-16s %s\n", name, figures.Shows(name))
	}
	c := &cobra.Command{
		Use:   "figures -o DIR",
		Short: "Draw the figures and tables of the scaling study, with the paper's numbers beside",
		Long: `Draw the figures and tables of the scaling study, with the paper's numbers beside.
DIR gets of each figure NAME.svg, .png and .pdf, and its numbers as NAME.md and .csv. Each
states its clock, cost table, workload, mesh, schedule and the command that made it.

` + shows.String() + `
The numbers are kept in the folder figures of --results. --remake simulates them anew, by the
files of its folder workloads and on estimated costs, and keeps them. A figure whose
numbers are missing or were made otherwise is named, the others are drawn.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkNames("only", only, figures.Names()); err != nil {
				return err
			}
			if err := checkNames("estimate", []string{o.Costs}, roofline.Names()); err != nil {
				return err
			}
			if err := checkNames("grain", []string{o.Grain}, []string{"block", "half"}); err != nil {
				return err
			}
			if o.Seeds < 1 || o.Seeds > 10 {
				return usageError{fmt.Errorf("--seeds %d: want 1 to 10", o.Seeds)}
			}
			if mesh != "" {
				if _, err := fmt.Sscanf(mesh+"\n", "%dx%d\n", &o.Mesh[0], &o.Mesh[1]); err != nil || o.Mesh[0] < 1 || o.Mesh[1] < 1 {
					return usageError{fmt.Errorf("--mesh %s: want STAGESxREPLICAS, as 8x90", mesh)}
				}
			}
			o.Revision, o.Show = thisBinary().Revision, barOf(c).Show
			if len(only) == 0 {
				only = figures.Names()
			}
			return drawFigures(c, only, output, remake, o)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "folder for pictures and tables; files of their names are replaced")
	c.Flags().StringSliceVar(&only, "only", nil, "figures to draw, some of "+strings.Join(figures.Names(), ", "))
	c.Flags().StringVar(&o.Results, "results", "results", "folder of kept results")
	c.Flags().BoolVar(&remake, "remake", false, "simulate the figures anew, which takes minutes")
	c.Flags().StringVar(&o.Costs, "estimate", "h100-paper", "costs of GPT's blocks, of "+strings.Join(roofline.Names(), ", "))
	c.Flags().StringVar(&mesh, "mesh", "", "STAGESxREPLICAS of all kinds; empty: the paper's")
	c.Flags().StringVar(&o.Grain, "grain", "block", "whole layers that move: block, or half of one")
	c.Flags().IntVar(&o.Seeds, "seeds", 5, "runs of each cell that --remake simulates, from 1 to 10")
	require(c, "output")
	return c
}

// drawFigures draws figures, simulated anew or as they are kept. It draws all that it can, and
// returns what was wrong with the others.
func drawFigures(c *cobra.Command, names []string, output string, remake bool, o figures.Options) error {
	var maker figures.Maker
	if remake {
		var err error
		if maker, err = figures.NewMaker(o); err != nil {
			return usageError{err}
		}
	}
	var problems []error
	for _, name := range names {
		f, err := oneFigure(c, maker, name, remake, o)
		if err == nil {
			err = f.Save(output)
		}
		if err != nil {
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

// oneFigure returns a figure, and keeps one that it simulates.
func oneFigure(c *cobra.Command, maker figures.Maker, name string, remake bool, o figures.Options) (figures.Figure, error) {
	if !remake {
		f, err := figures.Read(o.Results, name)
		for _, flag := range []string{"estimate", "mesh", "grain", "seeds"} {
			if err == nil && c.Flags().Changed(flag) {
				err = f.Matches(flag, c.Flags().Lookup(flag).Value.String())
			}
		}
		return f, err
	}
	f, err := maker.Make(name)
	if err != nil {
		return f, err
	}
	return f, f.Write(o.Results)
}
