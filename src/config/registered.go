package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
)

// Table is a table of settings that another package registers. Its fields have the same tags as the
// tables of a Config.
type Table struct {
	Name     string            // name of the table; for an existing table the keys are added to its own
	Tag      reflect.StructTag // tags of a new table: doc, only, when
	Place    int               // position in a file, among registered tables and among keys registered for one table
	Settings any               // a zero value of the struct
}

// registered has the values of registered tables: pointers, by the type of their structs. Copies of
// a Config share the values. A value never changes: Set replaces it.
type registered map[reflect.Type]any

// place marks the field of a table at which a file has the registered keys.
type place struct{}

// tables are the registered tables, in the order of a file.
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

// Set replaces the settings of a registered table. Copies of the Config keep their values.
func Set[T any](c *Config, settings T) {
	c.registered = maps.Clone(c.registered)
	if c.registered == nil {
		c.registered = make(registered)
	}
	c.registered[reflect.TypeFor[T]()] = &settings
}

// own replaces the values of registered tables by copies that no other Config shares.
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
