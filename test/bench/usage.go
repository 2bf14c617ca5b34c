package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// cpuSeconds is the user and system time of a process; 0 where it cannot be read (ended, or not on Linux).
func cpuSeconds(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const userTime, systemTime, ticksPerSecond = 11, 12, 100
	user, _ := strconv.ParseFloat(fields[userTime], 64)
	system, _ := strconv.ParseFloat(fields[systemTime], 64)
	return (user + system) / ticksPerSecond
}

// peakMB is the most memory that a process ever had resident, and residentMB what it has now, in millions of bytes.
func peakMB(pid int) float64     { return statusMB(pid, "VmHWM:") }
func residentMB(pid int) float64 { return statusMB(pid, "VmRSS:") }

// forgetPeak makes peakMB count from now on.
func forgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

func statusMB(pid int, field string) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), field)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kb, _ := strconv.ParseFloat(fields[0], 64)
	return kb * 1024 / 1e6
}
