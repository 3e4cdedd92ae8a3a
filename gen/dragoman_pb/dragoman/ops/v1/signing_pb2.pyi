import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SigningKeyState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SIGNING_KEY_STATE_UNSPECIFIED: _ClassVar[SigningKeyState]
    SIGNING_KEY_STATE_NEXT: _ClassVar[SigningKeyState]
    SIGNING_KEY_STATE_SIGNING: _ClassVar[SigningKeyState]
    SIGNING_KEY_STATE_FORMER: _ClassVar[SigningKeyState]
SIGNING_KEY_STATE_UNSPECIFIED: SigningKeyState
SIGNING_KEY_STATE_NEXT: SigningKeyState
SIGNING_KEY_STATE_SIGNING: SigningKeyState
SIGNING_KEY_STATE_FORMER: SigningKeyState

class SigningKey(_message.Message):
    __slots__ = ("id", "algorithm", "state", "created", "signs", "until")
    ID_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    SIGNS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    id: str
    algorithm: str
    state: SigningKeyState
    created: _timestamp_pb2.Timestamp
    signs: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., algorithm: _Optional[str] = ..., state: _Optional[_Union[SigningKeyState, str]] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., signs: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListSigningKeysRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSigningKeysResponse(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[SigningKey]
    def __init__(self, keys: _Optional[_Iterable[_Union[SigningKey, _Mapping]]] = ...) -> None: ...

class RotateSigningKeyRequest(_message.Message):
    __slots__ = ("algorithm", "lead", "keep")
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    LEAD_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    algorithm: str
    lead: _duration_pb2.Duration
    keep: _duration_pb2.Duration
    def __init__(self, algorithm: _Optional[str] = ..., lead: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., keep: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RotateSigningKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: SigningKey
    def __init__(self, key: _Optional[_Union[SigningKey, _Mapping]] = ...) -> None: ...

class WithdrawSigningKeyRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class WithdrawSigningKeyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
