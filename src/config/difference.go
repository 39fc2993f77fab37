package config

// Setting is the value of a setting.
type Setting struct {
	Name  string // table.key
	Value string // as TOML writes it
}

// Effective returns the settings that have an effect on a run, in the order of a file of settings.
func (c Config) Effective() (found []Setting) {
	list := settings(&c)
	for _, s := range list {
		if _, silent := s.silencer(list); !silent && s.only() != "simulate" {
			found = append(found, Setting{s.name(), s.text()})
		}
	}
	return found
}

// Difference is a setting that is not the same in several configurations.
type Difference struct {
	Name   string   // table.key
	Values []string // by configuration, as TOML writes them; "" where the setting has no effect
}

// Differences returns the settings in which the configurations of runs differ, in the order of a file of
// settings. It leaves out the settings that only simulated runs read.
func Differences(list []Config) (found []Difference) {
	all := make([][]setting, len(list))
	for i := range list {
		all[i] = settings(&list[i])
	}
	for k, s := range all[0] {
		if s.only() == "simulate" {
			continue
		}
		d, differ := Difference{Name: s.name()}, false
		for i := range list {
			value := all[i][k].text()
			if _, silent := all[i][k].silencer(all[i]); silent {
				value = ""
			}
			d.Values = append(d.Values, value)
			differ = differ || value != d.Values[0]
		}
		if differ {
			found = append(found, d)
		}
	}
	return found
}
