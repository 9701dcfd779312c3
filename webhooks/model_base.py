"""What all models share: one registry, names of constraints, timestamps with a zone."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import REAL, MetaData, Text, text
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.orm import DeclarativeBase, registry

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Every timestamp is timezone-aware; every table lies in the schema webhooks."""

    registry = registry(
        metadata=MetaData(schema="webhooks", naming_convention=NAMING),
        type_annotation_map={
            datetime: TIMESTAMP(timezone=True),
            UUID: PG_UUID(as_uuid=True),
            str: Text(),
            float: REAL(),
        },
    )
    __abstract__ = True


db = SQLAlchemy(model_class=Base)

NEW_ID = text("webhooks.uuid7()")
NOW = text("now()")
