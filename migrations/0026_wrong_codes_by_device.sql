-- Wrong codes of the day `wrong_on` typed on devices on which this factor was proved before; `wrong` counts those typed elsewhere.
-- So someone who guesses elsewhere does not use up the owner's attempts.
alter table user_second_factors add column wrong_where_proved int not null default 0;
