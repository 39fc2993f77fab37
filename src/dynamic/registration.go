package dynamic

import (
	"cmp"
	"slices"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/model"
	"dynmo/src/model/family"
	"dynmo/src/piece"
	"dynmo/src/tensor"
)

// Registration is all that the rest of the program knows of a kind of dynamism. Functions
// that are nil stand for a kind that has nothing to say there.
type Registration struct {
	Settings config.Kind

	// New returns what the kind does between steps; nil: nothing.
	New func(config.Config) Kind
	// Extension returns what the kind makes of the chain of the model; nil: nothing.
	Extension func(config.Config) model.Extension
	// Forcing has the load follow a file; the zero value: no file forces the kind's load.
	Forcing Forcing
	// Workload makes the kind's costs up, for a run that nobody has trained.
	Workload Making
	// Placing returns what decides where pieces of layers are; nil: they do not move.
	Placing func(config.Config) Placing
	// Held returns what tells of a layer, by its number among those that count, what its replicas
	// held in a step: of the pieces of all layers, and of what the layer counted.
	Held func(config.Config) func(pieces piece.Assignment, number int, counted Values) Held
	// Contest is ways to place pieces that a study compares.
	Contest Contest
	// Holds returns the settings that the costs of layers hold for: "table.key=value …".
	Holds func(config.Config) string
	// Had returns the settings that costs hold for, by the text of their shape (see Holds), in what
	// changes only memory; nil: nothing does.
	Had func(c config.Config, shape string) config.Config
	// Lean returns settings with the same results in less memory, and the setting that differs, as
	// "table.key = value"; "": there are none.
	Lean func(config.Config) (set string, lean config.Config)
	// Memory returns the bytes that the kind adds to every layer, for later steps.
	Memory func(config.Config, tensor.DType) []int64
	// Exported returns what other programs compute otherwise with a model that is exported.
	Exported func(config.Config) []string
	// Evaluated returns what the kind found out of layers in a step, by their numbers, and
	// the seconds that it took; nil and 0 if nothing.
	Evaluated func([]cost.CountSum) (map[int]float64, float64)
	// Forms are the model types of Hugging Face's that describe the kind's models; empty: a
	// kind's models are described as those of their family.
	Forms family.Forms
	// Counts are what layers of the kind count.
	Counts func(config.Config) []Counts
	// Sentence describes the model as the kind has changed it; "": there is nothing to say.
	Sentence func(Seen) string
	// Words say what the model was in a step, for a log.
	Words func(Seen) []string
	// Changes say what changes of the model have done, by their names in the records, from
	// their figures; "" where these do not tell.
	Changes map[string]func(of map[string]float64) string
	// Few is how the costs of a large model follow from those of a few of its blocks.
	Few Few
}

// Making is how the costs of a run are made up.
type Making struct {
	Every  int  // steps between changes of the model in the paper (sections 3.1, 3.5 and 4.1); 0: a tenth of the run
	Routed bool // microbatches cost differently: their number must be known
	Of     func(config.Config) Workload
	// Placing decides where pieces of layers are in a simulated run; nil, or a nil result: they stay.
	Placing func(config.Config) Placing
}

// Few is how the costs of a large model follow from those of a few of its blocks.
type Few struct {
	Blocks  func(*config.Config) int                                             // returns how many blocks have every form; changes settings so that they do
	Taken   func(Values) (taken, there float64)                                  // tokens of a count of the kind, the argument of Correct
	Correct func(few config.Config, layers []cost.Layer, taken float64)          // mends costs that were measured while blocks took another share of the tokens
	Finish  func(larger config.Config, layers []cost.Layer) (lower []cost.Layer) // returns what the layers of the larger model cost in the end
}

// registrations are all kinds, in their fixed order.
var registrations []Registration

// Register adds a kind behind those that are registered. It is called before there are any
// settings.
func Register(r Registration) {
	registrations = append(registrations, r)
	config.RegisterKind(r.Settings)
	if r.Forms.List != nil {
		family.RegisterForms(r.Forms)
	}
	if r.Extension != nil {
		model.RegisterShaper(func(c config.Config, shape *model.Config) {
			if c.Dynamic.Has(r.Settings.Name) {
				*shape = shape.With(r.Extension(c))
			}
		})
	}
}

// find returns the registration of a kind.
func find(name string) Registration {
	i := slices.IndexFunc(registrations, func(r Registration) bool { return r.Settings.Name == name })
	if i < 0 {
		panic("dynamic: a kind that is not registered")
	}
	return registrations[i]
}

// Active returns the kinds that the settings name, in the fixed order.
func Active(c config.Config) []Registration {
	return slices.DeleteFunc(slices.Clone(registrations), func(r Registration) bool { return !c.Dynamic.Has(r.Settings.Name) })
}

// Holds returns the settings of kinds that the costs of layers hold for, each with a blank
// before it: in the order of their tables in a file, as costs written before have them.
func Holds(c config.Config) (text string) {
	kinds := Active(c)
	slices.SortStableFunc(kinds, func(a, b Registration) int {
		return cmp.Compare(a.Settings.Tables[0].Place, b.Settings.Tables[0].Place)
	})
	for _, kind := range kinds {
		if kind.Holds != nil {
			text += " " + kind.Holds(c)
		}
	}
	return text
}

// Evaluated returns what kinds found out of layers in a step, by their numbers, and the
// seconds that it took; nil and 0 if nothing.
func Evaluated(counts []cost.CountSum) (byLayer map[int]float64, seconds float64) {
	for _, r := range registrations {
		if r.Evaluated == nil || byLayer != nil {
			continue
		}
		byLayer, seconds = r.Evaluated(counts)
	}
	return byLayer, seconds
}

// Taken returns the tokens that blocks took of those that were there, by counts of a name; 0
// and 0 where kinds take none.
func Taken(name string, list []int64) (taken, there float64) {
	for _, r := range registrations {
		if r.Few.Taken == nil {
			continue
		}
		if c, ok := Find(r.Counts(config.Config{}), name); ok {
			return r.Few.Taken(c.Read(list))
		}
	}
	return 0, 0
}

// FewBlocks changes the settings of a model so that a few blocks have every form, and
// returns how many: two, unless kinds say otherwise.
func FewBlocks(c *config.Config) (blocks int) {
	for _, kind := range Active(*c) {
		of := 2
		if kind.Few.Blocks != nil {
			of = kind.Few.Blocks(c)
		}
		blocks = max(blocks, of)
	}
	return cmp.Or(blocks, 2)
}
