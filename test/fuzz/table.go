package main

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

type row struct {
	target  target
	figures figures
	err     error
}

// table shows the rows and their sum.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| fuzz test | executions | inputs | took | |\n|---|---:|---:|---:|---|\n")
	var sum figures
	failed := 0
	for _, r := range rows {
		verdict := "no crash"
		if r.err != nil {
			verdict = "**failed**"
			failed++
		}
		sum.executions, sum.inputs, sum.took = sum.executions+r.figures.executions, sum.inputs+r.figures.inputs, sum.took+r.figures.took
		fmt.Fprintf(&b, "| `%s.%s` | %s | %d | %v | %s |\n", path.Base(r.target.pkg), r.target.name, thousands(r.figures.executions), r.figures.inputs,
			r.figures.took.Round(time.Second), verdict)
	}
	fmt.Fprintf(&b, "| all %d | %s | %d | %v | %d failed |\n", len(rows), thousands(sum.executions), sum.inputs, sum.took.Round(time.Second), failed)
	return b.String()
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}
