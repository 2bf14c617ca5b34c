package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// sample is what was measured of one subject in one round of a benchmark.
type sample struct {
	Benchmark string `json:"benchmark"`
	Subject   string `json:"subject"`
	Round     int    `json:"round"`
	Values    values `json:"values"`
}

// values are measures in the order in which they are shown.
type values []value

type value struct {
	name   string // with the unit
	number float64
}

// set adds a value. What is no number, as the cost per GB of nothing, was not measured.
func (s *sample) set(name string, number float64) {
	if !math.IsInf(number, 0) && !math.IsNaN(number) {
		s.Values = append(s.Values, value{name, number})
	}
}

// get is a value, and whether it was measured.
func (s sample) get(name string) (float64, bool) {
	for _, v := range s.Values {
		if v.name == name {
			return v.number, true
		}
	}
	return 0, false
}

// MarshalJSON writes an object with the values in their order.
func (vs values) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, v := range vs {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(v.name)
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(out, "%s:%.6g", name, v.number)
	}
	return append(out, '}'), nil
}

// keep adds a sample to the results and shows it.
func (l *lab) keep(s sample) {
	s.Benchmark, s.Round = l.benchmark, l.round
	l.samples = append(l.samples, s)
	fmt.Printf("  %-12s", s.Subject)
	for _, v := range s.Values {
		fmt.Printf("  %s %s", format(v.number), v.name)
	}
	fmt.Println()
}

// median of a set that is not empty; of an even number the mean of the two in the middle.
func median(numbers []float64) float64 {
	sorted := slices.Sorted(slices.Values(numbers))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// percentile of a set that is not empty, p from 0 to 1.
func percentile[T cmp.Ordered](numbers []T, p float64) T {
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// format shows three digits or more.
func format(number float64) string {
	switch a := max(number, -number); {
	case a >= 100:
		return fmt.Sprintf("%.0f", number)
	case a >= 10:
		return fmt.Sprintf("%.1f", number)
	case a >= 1:
		return fmt.Sprintf("%.2f", number)
	}
	return fmt.Sprintf("%.3f", number)
}
