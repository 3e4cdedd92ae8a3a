// Renders a chart's templates with Go's text/template where helm is not installed: render DATA.json FOLDER.
//
// DATA has the variables of the templates (Values, Release, Chart). Only the functions of Helm and Sprig that the chart
// uses exist here; a template with another one fails. Prints the manifests, as `helm template` does.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"text/template"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(data, folder string) error {
	text, err := os.ReadFile(data)
	if err != nil {
		return err
	}
	var values map[string]any
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	base := "chart/templates"
	values["Template"] = map[string]any{"BasePath": base}
	all := template.New("chart").Option("missingkey=zero")
	all.Funcs(functions(all))
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return err
	}
	sort.Strings(files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := all.New(base + "/" + filepath.Base(file)).Parse(string(text)); err != nil {
			return err
		}
	}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var out strings.Builder
		if err := all.ExecuteTemplate(&out, base+"/"+name, values); err != nil {
			return err
		}
		if strings.HasSuffix(name, ".yaml") {
			// As in Helm: the output of a missing value.
			fmt.Printf("---\n# Source: %s\n%s\n", name, strings.ReplaceAll(out.String(), "<no value>", ""))
		}
	}
	return nil
}

func functions(all *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out strings.Builder
			err := all.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"required": func(text string, value any) (any, error) {
			if empty(value) {
				return nil, errors.New(text)
			}
			return value, nil
		},
		"fail":       func(text string) (string, error) { return "", errors.New(text) },
		"default":    func(other, value any) any { return choose(empty(value), other, value) },
		"ternary":    func(yes, no any, is bool) any { return choose(is, yes, no) },
		"hasKey":     func(table map[string]any, key string) bool { _, there := table[key]; return there },
		"kindIs":     func(kind string, value any) bool { return value != nil && reflect.TypeOf(value).Kind().String() == kind },
		"contains":   func(part, text string) bool { return strings.Contains(text, part) },
		"trunc":      func(most int, text string) string { return text[:min(most, len(text))] },
		"trimSuffix": func(suffix, text string) string { return strings.TrimSuffix(text, suffix) },
		"upper":      strings.ToUpper,
		"quote":      func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"sha256sum":  func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
		"int":        func(value any) int { return int(number(value)) },
		"int64":      func(value any) int64 { return int64(number(value)) },
		"float64":    number,
		"floor":      func(value any) float64 { return math.Floor(number(value)) },
		"add": func(values ...any) int64 {
			var sum int64
			for _, value := range values {
				sum += int64(number(value))
			}
			return sum
		},
		"toYaml":  func(value any) string { return strings.TrimSuffix(block(value, ""), "\n") },
		"nindent": func(by int, text string) string { return "\n" + indented(by, text) },
	}
}

func indented(by int, text string) string {
	blanks := strings.Repeat(" ", by)
	return blanks + strings.ReplaceAll(text, "\n", "\n"+blanks)
}

func choose(is bool, yes, no any) any {
	if is {
		return yes
	}
	return no
}

func empty(value any) bool {
	is, _ := template.IsTrue(value)
	return !is
}

func number(value any) float64 {
	switch value := value.(type) {
	case float64:
		return value
	case int:
		return float64(value)
	case int64:
		return float64(value)
	}
	return 0
}

// block writes a value as YAML; scalars are JSON, which is YAML.
func block(value any, before string) string {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			return "{}\n"
		}
		keys := make([]string, 0, len(value))
		for key := range value {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		var out strings.Builder
		for _, key := range keys {
			out.WriteString(before + scalar(key) + ":" + under(value[key], before))
		}
		return out.String()
	case []any:
		if len(value) == 0 {
			return "[]\n"
		}
		var out strings.Builder
		for _, one := range value {
			inner := block(one, before+"  ")
			out.WriteString(before + "- " + strings.TrimPrefix(inner, before+"  "))
		}
		return out.String()
	}
	return scalar(value) + "\n"
}

func under(value any, before string) string {
	switch inner := value.(type) {
	case map[string]any:
		if len(inner) > 0 {
			return "\n" + block(inner, before+"  ")
		}
	case []any:
		if len(inner) > 0 {
			return "\n" + block(inner, before)
		}
	}
	return " " + block(value, "")
}

func scalar(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "null"
	}
	return string(text)
}
