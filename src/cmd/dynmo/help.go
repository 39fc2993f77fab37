package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/files"
	"dynmo/src/model/family"
)

// tasks group the commands in the help by the user's purpose. Each has one example.
var tasks = []struct{ id, title, commands string }{
	{"train", "Train:  dynmo train jobs/demo-4x1.toml", "train"},
	{"look", "Look and plan:  dynmo plan jobs/gpt-24l.toml --costs costs.json", "table report figures plan simulate balance"},
	{"others", "Other trainers:  dynmo layout --costs costs.json --stages 4 --microbatches 16 --for megatron", "layout costs"},
	{"measure", "Measure:  dynmo profile jobs/gpt-24l.toml -o costs.json", "profile bench"},
	{"files", "Data and checkpoints:  dynmo ckpt verify runs/RUN", "data ckpt sample"},
	{"machine", "The machine:  dynmo doctor", "doctor version completion help"},
}

// examples has an example of each command, by command path.
var examples = map[string]string{
	"dynmo train":            "mpirun -n 4 dynmo train jobs/demo-4x1.toml --run-dir runs/mine --resume",
	"dynmo figures":          "dynmo figures -o build/figures",
	"dynmo table":            "dynmo table runs/static runs/balanced",
	"dynmo report":           "dynmo report runs/balanced -o run.html",
	"dynmo plan":             "dynmo plan jobs/gpt-24l.toml --costs costs.json --network jobs/cluster.toml",
	"dynmo simulate":         "dynmo simulate jobs/gpt-24l.toml --costs costs.json --dynamic all",
	"dynmo balance":          "echo '{\"seconds\": [1, 2, 3, 4]}' | dynmo balance --loads - --stages 2",
	"dynmo costs":            "dynmo costs --megatron-log run.log --layout 'Et*8|t*8|t*8|t*8L' --microbatches 16 -o costs.json",
	"dynmo layout":           "dynmo layout --costs costs.json --stages 4 --microbatches 16 --for megatron --layout 'Et*8|t*8|t*8|t*8L'",
	"dynmo profile":          "dynmo profile jobs/gpt-24l.toml -o costs.json",
	"dynmo sample":           "dynmo sample runs/mine --prompt 'Once upon a time'",
	"dynmo doctor":           "dynmo doctor --require mpi",
	"dynmo data prepare":     "dynmo data prepare corpus.txt -o corpus.bin",
	"dynmo data inspect":     "dynmo data inspect corpus.bin",
	"dynmo ckpt inspect":     "dynmo ckpt inspect model.safetensors",
	"dynmo ckpt verify":      "dynmo ckpt verify runs/mine",
	"dynmo ckpt import":      "dynmo ckpt import gpt2/ -o gpt2.safetensors",
	"dynmo ckpt export":      "dynmo ckpt export runs/mine -o exported",
	"dynmo bench net":        "mpirun -n 2 dynmo bench net",
	"dynmo bench checkpoint": "dynmo bench checkpoint --dir /scratch",
	"dynmo bench node":       "srun --mpi=pmix dynmo bench node --records records",
	"dynmo bench pairs":      "srun --mpi=pmix dynmo bench pairs",
}

// addHelp groups the commands of root by task, and gives every command an example.
func addHelp(root *cobra.Command) {
	root.SetHelpCommandGroupID("machine")
	root.SetCompletionCommandGroupID("machine")
	for _, task := range tasks {
		root.AddGroup(&cobra.Group{ID: task.id, Title: task.title})
		for name := range strings.FieldsSeq(task.commands) {
			for _, c := range root.Commands() {
				if c.Name() == name {
					c.GroupID = task.id
				}
			}
		}
	}
	exemplify(root)
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			checkTopic(c)
		}
	}
}

// checkTopic makes the help command refuse words that are no command or topic. The error has the
// nearest one.
func checkTopic(help *cobra.Command) {
	show := help.Run
	help.Run, help.RunE = nil, func(c *cobra.Command, args []string) error {
		at := c.Root()
		for _, word := range args {
			var names []string
			var next *cobra.Command
			for _, child := range at.Commands() {
				names = append(names, child.Name())
				if child.Name() == word {
					next = child
				}
			}
			if len(names) == 0 {
				break // arguments of a command
			}
			if next == nil && strings.TrimSpace(word) == "" {
				return usageError{fmt.Errorf("help: no topic %q: %s help lists the topics", word, c.Root().Name())}
			}
			if next == nil {
				return usageError{fmt.Errorf("help: no topic %q; the nearest is %s help %s", word, c.Root().Name(), strings.TrimSpace(strings.TrimPrefix(at.CommandPath(), c.Root().Name())+" "+files.Nearest(word, names)))}
			}
			at = next
		}
		show(c, args)
		return nil
	}
}

// exemplify adds an example to each command below c that runs. The example is that of examples, or
// the bare command if that runs.
func exemplify(c *cobra.Command) {
	if c.RunE != nil && !c.HasSubCommands() {
		example := examples[c.CommandPath()]
		if example == "" {
			example = c.CommandPath()
		}
		c.Example = "  " + example
	}
	for _, child := range c.Commands() {
		exemplify(child)
	}
}

// pages are the help topics, in Markdown.
//
//go:embed help/*.md
var pages embed.FS

// topics returns the help topics: commands that only print a text. The topic on settings is a file
// with every setting, which train can read.
func topics() []*cobra.Command {
	settings := &cobra.Command{Use: "config", Short: "every setting with its default, range and meaning (dynmo help config > run.toml)"}
	settings.SetHelpFunc(func(c *cobra.Command, args []string) { // made only when needed, because the text takes longer to make than a command takes to start
		c.Long = config.Default().TOML()
		c.Parent().HelpFunc()(c, args)
	})
	table := &cobra.Command{Use: "fields", Short: "every field of a model's config.json: read, of one value, or without effect"}
	table.SetHelpFunc(func(c *cobra.Command, args []string) { // the model types are registered after the commands are made
		c.Long = fields()
		c.Parent().HelpFunc()(c, args)
	})
	list := []*cobra.Command{settings, table}
	for _, t := range []struct{ name, short string }{
		{"kinds", "what changes a model while it trains, how layers are balanced and packed"},
		{"files", "what a run leaves, and what the words mean"},
		{"clocks", "which clock made a time; profile, plan and simulate"},
		{"workloads", "files of workloads, of which dynmo figures simulates a study"},
		{"faults", "what becomes of a run when something fails, and how it goes on"},
		{"slurm", "batch jobs, and nodes that go back"},
		{"gpu", "building and running on GPUs"},
		{"trainers", "layouts for Megatron-LM, torchtitan, DeepSpeed and others: what their logs must have"},
	} {
		list = append(list, &cobra.Command{Use: t.name, Short: t.short, Long: page(t.name)})
	}
	return list
}

// fields returns the table of the fields of config.json.
func fields() string {
	var b strings.Builder
	fmt.Fprintf(&b, `The fields of config.json, with the file of Transformers %s that reads them. A field is read, or is
fixed: it has one of the values behind "=" or is absent. An ignored field changes no logit. ckpt
import refuses other values of fixed fields, and fields that are not in the table. If such a field
changes nothing in the model, take it out of config.json.
`, family.Transformers)
	first := make(map[string]string) // type with a row, by keys and source
	write := func(name string, rows []family.Field) {
		also := ""
		rows = slices.DeleteFunc(slices.Clone(rows), func(row family.Field) bool {
			at := row.Keys + row.Source
			if first[at] != "" {
				also = ": the rows of " + first[at] + ", and before them"
				return true
			}
			first[at] = name
			return false
		})
		fmt.Fprintf(&b, "\n%s%s\n", name, also)
		for _, row := range rows {
			fmt.Fprintf(&b, "  %-8s %s", row.Use, row.Source+":")
			left := 0
			for key := range strings.FieldsSeq(row.Keys) {
				if left -= len(key) + 1; left < 0 {
					b.WriteString("\n          ")
					left = 90 - len(key)
				}
				b.WriteString(" " + key)
			}
			for i, want := range row.Want {
				text, err := json.Marshal(want)
				if err != nil {
					panic(err)
				}
				fmt.Fprintf(&b, " %s %s", map[bool]string{true: "=", false: "or"}[i == 0], text)
			}
			b.WriteByte('\n')
		}
	}
	_, names, _ := family.Named("")
	for _, name := range names {
		form, _, _ := family.Named(name)
		write(name, form.Fields)
	}
	write("all types", family.Common)
	return strings.TrimSuffix(b.String(), "\n")
}

// page returns a help topic's text.
func page(name string) string {
	text, err := pages.ReadFile("help/" + name + ".md")
	if err != nil {
		panic(err)
	}
	return string(text)
}
