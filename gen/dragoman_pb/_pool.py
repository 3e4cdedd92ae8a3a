"""A DescriptorPool of this package's own, so that its proto packages can live in one process with
another library that registers the same names in the default pool."""

from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf import message_factory as _message_factory

_DEFAULT = _descriptor_pool.Default()

POOL = _descriptor_pool.DescriptorPool()
_known = set()


def adopt(file):
    """Copy one file of the default pool (its name or its DESCRIPTOR), and what it imports, into POOL."""
    name = getattr(file, "name", file)
    if name not in _known:
        add(_DEFAULT.FindFileByName(name).serialized_pb)


def add(serialized):
    """Add one serialized FileDescriptorProto to POOL; what it imports comes out of the default pool."""
    proto = _descriptor_pb2.FileDescriptorProto.FromString(serialized)
    for dependency in proto.dependency:
        adopt(dependency)
    _known.add(proto.name)
    return POOL.AddSerializedFile(serialized)


def message_class(full_name):
    """The class of POOL for a message, for example google.protobuf.Timestamp."""
    return _message_factory.GetMessageClass(POOL.FindMessageTypeByName(full_name))


class _Shim:
    AddSerializedFile = staticmethod(add)


def Default():
    """What generated code calls instead of the default pool."""
    return _Shim
