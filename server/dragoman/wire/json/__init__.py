"""ProtoJSON: JSON codecs for protobuf messages."""
