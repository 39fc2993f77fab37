package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
)

// Table is a table of settings that another package registers. Its fields have the tags of
// the tables of a Config.
type Table struct {
	Name     string            // of the table; an existing table has the keys beside its own
	Tag      reflect.StructTag // of a table that is new: doc, only, when
	Place    int               // the order among registered tables, and among keys registered for one table, in a file
	Settings any               // a zero value of the struct
}

// registered are the values of registered tables: pointers, by the type of their structs.
// Values are shared between copies of a Config and never change: Set replaces them.
type registered map[reflect.Type]any

// place marks the field of a table at which a file has the keys that are registered for it.
type place struct{}

// tables are all that are registered, in the order of a file.
var tables []Table

// registerTable adds a table to every Config.
func registerTable(t Table) {
	tables = append(tables, t)
	slices.SortStableFunc(tables, func(a, b Table) int { return cmp.Compare(a.Place, b.Place) })
}

// Of returns the settings of a registered table.
func Of[T any](c Config) (settings T) {
	if p, ok := c.registered[reflect.TypeFor[T]()].(*T); ok {
		return *p
	}
	return settings
}

// Set gives a registered table other settings. Copies of the Config keep theirs.
func Set[T any](c *Config, settings T) {
	c.registered = maps.Clone(c.registered)
	if c.registered == nil {
		c.registered = make(registered)
	}
	c.registered[reflect.TypeFor[T]()] = &settings
}

// own gives a Config values of registered tables that no copy of it shares.
func (c *Config) own() {
	mine := make(registered)
	for _, t := range tables {
		of := reflect.TypeOf(t.Settings)
		value := reflect.New(of)
		if shared, ok := c.registered[of]; ok {
			value.Elem().Set(reflect.ValueOf(shared).Elem())
		}
		mine[of] = value.Interface()
	}
	c.registered = mine
}

// settings returns every setting of c in the order of a file.
func settings(c *Config) []setting {
	if len(c.registered) < len(tables) {
		c.own()
	}
	var list []setting
	table := func(name string, tag reflect.StructTag, value reflect.Value) {
		for field, value := range value.Fields() {
			if field.Type != reflect.TypeFor[place]() {
				list = append(list, newSetting(name, tag, field, value))
				continue
			}
			for _, t := range tables {
				if t.Name == name {
					for field, value := range reflect.ValueOf(c.registered[reflect.TypeOf(t.Settings)]).Elem().Fields() {
						list = append(list, newSetting(name, tag, field, value))
					}
				}
			}
		}
	}
	for field, value := range reflect.ValueOf(c).Elem().Fields() {
		if field.Type != reflect.TypeFor[registered]() {
			table(field.Tag.Get("toml"), field.Tag, value)
			continue
		}
		for _, t := range tables {
			if t.Tag != "" {
				table(t.Name, t.Tag, reflect.ValueOf(c.registered[reflect.TypeOf(t.Settings)]).Elem())
			}
		}
	}
	return list
}
