package main

import "strings"

// markFields marks the fields of one struct that the gateway looks for.
func (m *message) markFields(fields []*field) {
	for _, f := range fields {
		switch {
		case f.kind == "uuid" && f.Name == "TopicId":
			f.mark = "TopicID"
		case f.kind == "string" && f.Entity == "topicName":
			f.mark = "TopicName"
		case f.kind == "records":
			f.mark = "RecordData"
		case m.Name == "ProduceRequest" && f.Name == "Acks":
			f.mark = "Acks"
		case m.Name == "OffsetForLeaderEpochRequest" && f.Name == "LeaderEpoch":
			f.mark = "EndOfEpoch"
		case isLeaderEpoch(f) && !amongBrokers[m.Key]:
			f.mark = "LeaderEpoch"
		case f.Name == "DivergingEpoch":
			markEpoch(f.Fields)
		}
	}
	if m.Type == "response" {
		m.markAddresses(fields)
		if !withoutRequest[m.Key] {
			markErrorTexts(fields)
		}
	}
}

// isLeaderEpoch reports whether a field is the leader epoch of a partition or of a record.
func isLeaderEpoch(f *field) bool {
	return f.kind == "int32" && (strings.HasSuffix(f.Name, "LeaderEpoch") || f.Name == "LastFetchedEpoch")
}

// amongBrokers are the APIs with leader epochs that only brokers and controllers use, or that are about the metadata log.
var amongBrokers = map[int]bool{
	52: true, 53: true, 54: true, 55: true, 56: true, 59: true, 82: true, 83: true, 84: true, 85: true, 86: true, 87: true,
}

// markEpoch marks the epoch at which a log diverges.
func markEpoch(fields []*field) {
	for _, f := range fields {
		if f.Name == "Epoch" {
			f.mark = "LeaderEpoch"
		}
	}
}

// withoutRequest are the APIs whose error messages never quote a request, which are those of data and groups: they are
// answered so often that nobody should look.
var withoutRequest = map[int]bool{0: true, 1: true, 10: true, 68: true, 76: true, 78: true, 79: true, 88: true, 92: true}

// markErrorTexts marks messages of errors: where a right on the cluster is missing, they quote the request with the address
// of the broker.
func markErrorTexts(fields []*field) {
	for _, f := range fields {
		if f.kind == "string" && !f.array && strings.HasSuffix(f.Name, "ErrorMessage") {
			f.mark = "ErrorText"
		}
	}
}

// markAddresses marks addresses of brokers and controllers in one struct of a response: a broker's by node ID, host and
// port; a controller's list as a whole. The Host of an ACL, the ClientHost of a group member and the endpoint of a
// streams member are the users' own data.
func (m *message) markAddresses(fields []*field) {
	var node *field
	for _, f := range fields {
		if f.kind == "int32" && !f.array && f.Entity == "brokerId" {
			node = f
		}
		if f.array && ofControllers(f.Fields) {
			f.mark = "Listeners"
			clearMarks(f.Fields)
		}
	}
	for i, host := range fields {
		if host.Name != "Host" || i+1 == len(fields) || fields[i+1].Name != "Port" || node == nil {
			continue
		}
		port := fields[i+1]
		if m.Name == "UpdateRaftVoterResponse" {
			host.mark, port.mark = "ControllerHost", "ControllerPort"
		} else {
			node.mark, host.mark, port.mark = "NodeID", "BrokerHost", "BrokerPort"
		}
	}
}

// ofControllers reports whether a struct is the address of a controller: those have ports of 16 bits.
func ofControllers(fields []*field) bool {
	return len(fields) >= 3 && fields[1].Name == "Host" && fields[2].Name == "Port" && fields[2].kind == "uint16"
}

func clearMarks(fields []*field) {
	for _, f := range fields {
		f.mark = ""
	}
}
