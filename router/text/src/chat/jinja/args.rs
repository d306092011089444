//! Arguments as Python binds them: by place, then by name.

use minijinja::value::{Kwargs, Rest, ValueOrKwargs};
use minijinja::{Error, ErrorKind, Value};

use super::value::fault;

/// What a filter, test, function or method was called with; the value it works on comes first where there is one.
pub struct Args {
    places: Vec<Value>,
    names: Vec<(String, Value)>,
}

impl Args {
    pub fn of(values: &[Value]) -> Result<Self, Error> {
        let (places, names) = match values.split_last() {
            Some((last, places)) if last.is_kwargs() => (places, named(last)?),
            _ => (values, Vec::new()),
        };
        Ok(Self { places: places.to_vec(), names })
    }

    pub fn of_rest(values: Rest<ValueOrKwargs>) -> Result<Self, Error> {
        Self::of(&values.into_values())
    }

    /// The value in each parameter's place; a parameter that was not given is `None`.
    pub fn bind<const N: usize>(self, parameters: [&str; N]) -> Result<[Option<Value>; N], Error> {
        if self.places.len() > N {
            let kind = ErrorKind::TooManyArguments;
            return Err(Error::new(kind, format!("{N} arguments are taken, {} were given", self.places.len())));
        }
        let mut bound = [const { None }; N];
        for (place, value) in bound.iter_mut().zip(self.places) {
            *place = Some(value);
        }
        for (name, value) in self.names {
            let place = parameters.iter().position(|parameter| *parameter == name);
            let place = place.ok_or_else(|| fault(format!("unexpected keyword argument {name:?}")))?;
            if bound[place].replace(value).is_some() {
                return Err(fault(format!("argument {name:?} was given twice")));
            }
        }
        Ok(bound)
    }

    /// The value that is worked on, and the arguments after it.
    pub fn first(mut self) -> Result<(Value, Self), Error> {
        if self.places.is_empty() {
            return Err(Error::from(ErrorKind::MissingArgument));
        }
        let value = self.places.remove(0);
        Ok((value, self))
    }

    /// Those that were given by place.
    pub fn places(&self) -> &[Value] {
        &self.places
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.names.is_empty()
    }

    /// Takes a named argument out.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let place = self.names.iter().position(|(given, _)| given == name)?;
        Some(self.names.remove(place).1)
    }

    /// The arguments by place alone.
    pub fn into_places(self) -> Result<Vec<Value>, Error> {
        match self.names.first() {
            Some((name, _)) => Err(fault(format!("unexpected keyword argument {name:?}"))),
            None => Ok(self.places),
        }
    }

    /// The arguments as minijinja passes them on.
    pub fn into_values(self) -> Vec<Value> {
        let mut values = self.places;
        if !self.names.is_empty() {
            values.push(Value::from(self.names.into_iter().collect::<Kwargs>()));
        }
        values
    }
}

fn named(kwargs: &Value) -> Result<Vec<(String, Value)>, Error> {
    let mut names = Vec::new();
    for name in kwargs.try_iter()? {
        let value = kwargs.get_item(&name)?;
        names.push((name.to_string(), value));
    }
    Ok(names)
}

/// An argument that must be there.
pub fn required(value: Option<Value>, name: &str) -> Result<Value, Error> {
    value.ok_or_else(|| Error::new(ErrorKind::MissingArgument, format!("argument {name:?} is missing")))
}

/// An argument that counts something; `None` where Python's `None` was given or nothing.
pub fn whole(value: Option<Value>, name: &str) -> Result<Option<i64>, Error> {
    match value {
        None => Ok(None),
        Some(value) if value.is_none() => Ok(None),
        Some(value) => {
            let number = value.as_i64().filter(|_| value.kind() != minijinja::value::ValueKind::String);
            number.map(Some).ok_or_else(|| fault(format!("argument {name:?} must be a whole number")))
        }
    }
}

/// Whether a switch is on.
pub fn switch(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}
